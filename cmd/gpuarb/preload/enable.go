package preload

// This file enables and disables a target. files.go says which blocks a target needs, block.go
// writes them, and verify.go starts programs to verify the result.

import (
	"errors"
	"fmt"
	"slices"
)

// Enable puts the programs of a target under the library at a path of the machine. It starts a
// program with the library before it writes anything. After that it starts another
// program as the target's programs start. If the second program fails, Enable restores all files.
func (m Machine) Enable(t Target, library, memory string) error {
	if err := m.checkTrusted(library); err != nil {
		return err
	}
	if err := m.checkTarget(t); err != nil {
		return err
	}
	if err := m.checkLoads(library, "LD_PRELOAD="+library); err != nil {
		return err
	}
	unlock, err := lock(m.path("/etc"))
	if err != nil {
		return err
	}
	defer unlock()
	if err := m.write(t, library, memory); err != nil {
		return err
	}
	if err := m.verify(t, library); err != nil {
		_, undone := m.removeAll(t)
		return errors.Join(fmt.Errorf("%w; nothing was changed", err), undone)
	}
	return nil
}

// write writes all blocks or none. The loader's list is written last and removed first. Its record
// is in a folder that other blocks need too, so the record can be created again there.
func (m Machine) write(t Target, library, memory string) error {
	err := m.insert(m.blocks(t, library, memory, m.preloaded(t, library)))
	if err == nil && t.Kind == All {
		err = m.listEverywhere(library)
	}
	if err != nil && t.Kind == All {
		_, undone := m.removeAll(t)
		err = errors.Join(err, undone)
	}
	return err
}

// insert inserts all blocks, or none.
func (m Machine) insert(blocks []block) error {
	for i, b := range blocks {
		if err := b.insert(); err != nil {
			for _, written := range slices.Backward(blocks[:i]) {
				_, undone := written.remove()
				err = errors.Join(err, undone)
			}
			return err
		}
	}
	return nil
}

// Disable removes what Enable wrote, and nothing else. It returns false if Enable had written
// nothing.
func (m Machine) Disable(t Target) (bool, error) {
	unlock, err := lock(m.path("/etc"))
	if err != nil {
		return false, err
	}
	defer unlock()
	found, err := m.removeAll(t)
	if err == nil && found && (t.Kind == Unit && m.Here() || t.Kind == All && m.booted()) {
		err = m.reloadUnits()
	}
	return found, err
}

// removeAll removes the blocks in the opposite order, so that no block names a file that is already
// gone.
func (m Machine) removeAll(t Target) (found bool, err error) {
	if t.Kind == All {
		found, err = m.unlistEverywhere()
	}
	for _, b := range slices.Backward(m.blocks(t, "", "", nil)) {
		one, failed := b.remove()
		found = found || one
		err = errors.Join(err, failed)
	}
	return found, err
}
