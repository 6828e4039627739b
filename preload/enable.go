package preload

import (
	"errors"
	"fmt"
	"slices"
)

// Enable puts a target's programs under the library at a path of the machine. Before anything is
// written a program is started with the library, and another after it, in the way of the
// target's; where that one fails all is as it was before.
func (m Machine) Enable(t Target, library, memory string) error {
	if err := m.trusted(library); err != nil {
		return err
	}
	if err := m.exists(t); err != nil {
		return err
	}
	if err := m.loads(library, "LD_PRELOAD="+library); err != nil {
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
	if err := m.try(t, library); err != nil {
		_, undone := m.removeAll(t)
		return errors.Join(fmt.Errorf("%w; nothing was changed", err), undone)
	}
	return nil
}

// write writes all that it takes, or nothing. The loader's list comes last, and is taken back first: its record can be made anew
// in a folder that the other files keep.
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

// Disable takes out what Enable wrote, and leaves all else; false: there was nothing.
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

// removeAll takes the blocks out in the opposite order: who reads them meanwhile finds none that
// names a file that is gone.
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
