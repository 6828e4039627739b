package archive

// This file finds the numbers by which rows refer to texts and devices that many rows share. write.go calls it.

import "database/sql"

// mostTexts bounds the texts whose numbers are kept in memory. If it is reached, all of them are dropped.
const mostTexts = 8192

// text returns the number of a text. It adds the text if the store lacks it.
func (s *store) text(tx *sql.Tx, text string) (id int64, err error) {
	if id, known := s.texts[text]; known {
		return id, nil
	}
	if err = tx.QueryRow("SELECT id FROM texts WHERE text = ?", text).Scan(&id); err == sql.ErrNoRows {
		err = tx.QueryRow("INSERT INTO texts (text) VALUES (?) RETURNING id", text).Scan(&id)
	}
	if err != nil {
		return 0, err
	}
	if len(s.texts) >= mostTexts {
		clear(s.texts)
	}
	s.texts[text] = id
	return id, nil
}

// device returns the number of a device. It adds the device if the store lacks it.
func (s *store) device(tx *sql.Tx, d device) (id int64, err error) {
	if id, known := s.devices[d]; known {
		return id, nil
	}
	if err = tx.QueryRow("SELECT id FROM devices WHERE uuid = ? AND number = ?", d.uuid, d.number).Scan(&id); err == sql.ErrNoRows {
		err = tx.QueryRow("INSERT INTO devices (uuid, number) VALUES (?, ?) RETURNING id", d.uuid, d.number).Scan(&id)
	}
	if err == nil {
		s.devices[d] = id
	}
	return id, err
}

// forget drops all numbers and totals in memory. The caller has rolled back a transaction, and some of them may be of rows that it added.
func (s *store) forget() {
	clear(s.texts)
	clear(s.devices)
	clear(s.open)
}
