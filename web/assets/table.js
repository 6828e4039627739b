// This file has a table that can be sorted by a click on a heading or by the keyboard. Its rows are
// updated in place, so that the focus and a selection of text stay while states arrive. On a narrow
// screen each row is a card, and the headings are a row of buttons above the cards. tables.js makes
// the tables of the page.

import { fill, h, set } from './element.js';

export const MAX_ROWS = 200; // a browser is slow with more

/**
 * A column is {head, value, cell, largest}: value returns what a row is sorted by, cell returns the
 * text or element of a row (the value if it is missing), and largest says that it has amounts: the
 * first click puts the largest row first.
 */
export class Table {
  /** id is the id of the element that the table is in; rows are shown in the order of show() until a heading is chosen. */
  constructor(id, caption, columns) {
    this.columns = columns;
    this.by = null; // index of the column by which rows are sorted; null: in the order of show()
    this.reversed = false;
    this.rows = new Map(); // key → tr
    this.groups = new Map(); // key → tbody
    this.buttons = columns.map((c, i) => {
      const button = h('button', { type: 'button' }, c.head);
      button.addEventListener('click', () => this.choose(i));
      return button;
    });
    this.heads = this.buttons.map((b, i) => h('th', { scope: 'col', class: columns[i].largest ? 'number' : null }, b));
    this.root = h('table', { id }, h('caption', { class: 'unseen' }, caption), h('thead', {}, h('tr', {}, ...this.heads)));
  }

  /** choose sorts by column i. A second call for that column reverses the order, and a third one ends the sort. */
  choose(i) {
    if (this.by !== i) [this.by, this.reversed] = [i, false];
    else if (!this.reversed) this.reversed = true;
    else [this.by, this.reversed] = [null, false];
    this.show(this.all);
  }

  /**
   * show shows groups of rows: {key, head, rows}. head is an element above the rows of the group; null: none. A row is
   * {key, id, kind, pinned, data}. kind is its class in page.css. Pinned rows are shown even if there are too many rows.
   */
  show(groups) {
    this.all = groups;
    this.heads.forEach((th, i) => set(th, 'aria-sort', i !== this.by ? 'none' : this.falls(i) ? 'descending' : 'ascending'));
    const keys = new Set();
    let left = MAX_ROWS;
    groups.forEach((group) => {
      const rows = this.cut(this.sorted(group.rows), left);
      left = Math.max(0, left - rows.length);
      if (rows.length === 0) return;
      let body = this.groups.get(group.key);
      if (!body) this.groups.set(group.key, body = h('tbody'));
      const trs = rows.map((row) => {
        keys.add(row.key);
        return this.row(row);
      });
      if (group.head) trs.unshift(this.groupHead(body, group.head));
      arrange(body, trs);
    });
    arrange(this.root, [this.root.caption, this.root.tHead, ...groups.map((g) => this.groups.get(g.key)).filter((b) => b && b.rows.length > 0)]);
    for (const key of this.rows.keys()) if (!keys.has(key)) this.rows.delete(key);
    for (const key of this.groups.keys()) if (!groups.some((g) => g.key === key)) this.groups.delete(key);
  }

  groupHead(body, head) {
    const tr = body.querySelector('tr.group') ?? h('tr', { class: 'group' }, h('th', { scope: 'rowgroup', colspan: this.columns.length }));
    fill(tr.firstChild, head);
    return tr;
  }

  falls(i) { return Boolean(this.columns[i].largest) !== this.reversed; }

  sorted(rows) {
    if (this.by === null) return rows;
    const { value } = this.columns[this.by];
    const sign = this.falls(this.by) ? -1 : 1;
    return [...rows].sort((a, b) => sign * compare(value(a.data), value(b.data)));
  }

  /** cut leaves out rows beyond the first n, but keeps pinned rows. */
  cut(rows, n) {
    return rows.length <= n ? rows : rows.filter((row, i) => i < n || row.pinned);
  }

  row(row) {
    let tr = this.rows.get(row.key);
    if (!tr) this.rows.set(row.key, tr = h('tr', { id: row.id }, ...this.columns.map((c) => h('td', { 'data-head': c.head, class: c.largest ? 'number' : null }))));
    set(tr, 'class', row.kind ?? '');
    this.columns.forEach((c, i) => fill(tr.children[i], c.cell ? c.cell(row.data) : c.value(row.data)));
    return tr;
  }
}

/** compare compares numbers, or texts in which numbers count as numbers. */
function compare(a, b) {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

/** arrange makes children the children of an element, and moves only those that are at another place. */
function arrange(parent, children) {
  const wanted = new Set(children);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  children.forEach((child, i) => { if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null); });
}
