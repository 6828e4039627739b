// Package scenes plays whole days of users: each is a script in testdata, on a machine of its own
// with the simulated driver, that ends with 0 where everything went as a user would expect.
package scenes
