'use strict';
// Moves what the page's drawing shows: searches, folds, selects. All text goes in as text.
const model = JSON.parse(document.getElementById('model').textContent);
const svg = document.getElementById('drawing');
const all = document.getElementById('all');
const paper = document.getElementById('paper');
const element = (kind, i) => document.getElementById(kind + i);
const measure = model.measure;
const folded = {group: new Set(), column: new Set()};
model.columns.forEach((column, c) => {
  if (column.body) folded.column.add(c);
});
const linksOf = model.items.map(() => ({above: [], below: []}));
model.links.forEach((link, l) => {
  linksOf[link.t].above.push(l);
  linksOf[link.f].below.push(l);
});
const texts = model.items.map((item) =>
    [item.t, item.s, ...item.d.map((d) => d[1])].join('\n').toLowerCase());

// --- Places. As tools/view/arrange.cpp places them where nothing is folded.

const groupTitle = (g) => element('g', g).querySelector('text').textContent;
function blockSize(block) {
  if (block.g === null || !folded.group.has(block.g)) return {w: block.w, h: block.h};
  return {w: Math.min(block.w, groupTitle(block.g).length * 6.65 + 24), h: 26};
}

function placeStage(c, column) {
  const heights = new Array(column.layers).fill(0);
  const blocks = model.blocks.filter((b) => b.c === c);
  for (const b of blocks) heights[b.l] = Math.max(heights[b.l], blockSize(b).h);
  let y = measure.top;
  column.tops = heights.map((h) => {
    const top = y;
    y += h + measure.layer_gap;
    return top;
  });
  column.heights = heights;
  for (const b of blocks) b.y = column.tops[b.l] + (heights[b.l] - blockSize(b).h) / 2;
}

function upperEdge(item) {
  if (item.b === null) return item.placed;
  const b = model.blocks[item.b];
  return b.y + (b.g !== null && folded.group.has(b.g) ? 0 : item.y);
}

function placeHeld(c) {
  const held = [];
  model.items.forEach((item, i) => {
    if (item.c === c) held.push(i);
  });
  const maker = (i) => model.items[model.links[linksOf[i].above[0]].f];
  held.sort((a, b) => upperEdge(maker(a)) - upperEdge(maker(b)) || a - b);
  let y = measure.top;
  for (const i of held) {
    const item = model.items[i];
    item.placed = Math.max(y, upperEdge(maker(i)));
    y = item.placed + item.h + measure.held_gap;
  }
}

// The box that stands for an item; null where its column is folded.
function boxOf(item) {
  if (folded.column.has(item.c)) return null;
  const column = model.columns[item.c];
  if (item.b === null) return {x: column.at + item.x, y: item.placed, w: item.w, h: item.h};
  const b = model.blocks[item.b], size = blockSize(b);
  const x = column.at + b.x - size.w / 2;
  if (b.g !== null && folded.group.has(b.g)) return {x, y: b.y, w: size.w, h: size.h};
  return {x: x + item.x, y: b.y + item.y, w: item.w, h: item.h};
}

function pathOf(link) {
  const from = model.items[link.f], to = model.items[link.t];
  const a = boxOf(from), b = boxOf(to);
  if (!a || !b) return '';
  if (from.c !== to.c) {
    const x = a.x + a.w, y = a.y + a.h / 2, v = b.y + b.h / 2, m = (x + b.x) / 2;
    return `M${x} ${y}C${m} ${y} ${m} ${v} ${b.x} ${v}`;
  }
  if (from.b === to.b && from.g !== null && folded.group.has(from.g)) return '';
  const column = model.columns[from.c];
  // The link before it has drawn the first part of the way.
  const block = model.blocks[from.b], drawn = link.a === undefined ? 0 : model.links[link.a].b;
  const enter = (k) => column.at + block.k[k], layer = (k) => block.l + 1 + k;
  const leave = (k) => column.tops[layer(k)] + column.heights[layer(k)];
  let x = drawn ? enter(drawn - 1) : a.x + a.w / 2, y = drawn ? leave(drawn - 1) : a.y + a.h;
  let d = `M${x} ${y}`;
  const curve = (u, v) => {
    const m = (y + v) / 2;
    d += `C${x} ${m} ${u} ${m} ${u} ${v}`;
    x = u;
    y = v;
  };
  for (let k = drawn; k < (link.b || 0); ++k) {
    curve(enter(k), column.tops[layer(k)]);
    y = leave(k);
    d += `V${y}`;
  }
  curve(b.x + b.w / 2, b.y);
  return d;
}

function move(node, x, y) {
  node.setAttribute('transform', `translate(${x.toFixed(1)},${y.toFixed(1)})`);
}

function place() {
  let x = 24;
  model.columns.forEach((column, c) => {
    if (column.stage) placeStage(c, column);
    else placeHeld(c);
    const isFolded = folded.column.has(c);
    column.at = x;
    const width = isFolded ? measure.folded_column : column.w;
    x += width + measure.column_gap;
    const node = element('c', c);
    move(node, column.at, 0);
    node.querySelector('rect').setAttribute('width', width + 28);
    node.querySelectorAll('text').forEach((t) => {
      if (isFolded) t.setAttribute('transform', 'rotate(90) translate(20,-20)');
      else t.removeAttribute('transform');
    });
  });
  model.groups.forEach((group, g) => {
    const b = model.blocks[group.b], size = blockSize(b), node = element('g', g);
    move(node, model.columns[b.c].at + b.x - size.w / 2, b.y);
    node.querySelector('rect').setAttribute('width', size.w);
    node.querySelector('rect').setAttribute('height', size.h);
    node.classList.toggle('hidden', folded.column.has(b.c));
  });
  model.items.forEach((item, i) => {
    const node = element('i', i), box = boxOf(item);
    const hidden = !box || (item.g !== null && folded.group.has(item.g));
    node.classList.toggle('hidden', hidden);
    if (!hidden) move(node, box.x, box.y);
  });
  model.links.forEach((link, l) => element('l', l).setAttribute('d', pathOf(link)));
}

// --- What is seen of it.

const seen = {x: 0, y: 0, scale: 1};
function look() {
  all.setAttribute('transform', `translate(${seen.x},${seen.y}) scale(${seen.scale})`);
}
function zoom(factor, x = paper.clientWidth / 2, y = paper.clientHeight / 2) {
  const scale = Math.min(4, Math.max(0.02, seen.scale * factor));
  seen.x = x - (x - seen.x) * scale / seen.scale;
  seen.y = y - (y - seen.y) * scale / seen.scale;
  seen.scale = scale;
  look();
}
function fit() {
  const box = all.getBBox();
  seen.scale = Math.min(1.5, paper.clientWidth / (box.width + 40),
                        paper.clientHeight / (box.height + 40));
  seen.x = (paper.clientWidth - box.width * seen.scale) / 2 - box.x * seen.scale;
  seen.y = (paper.clientHeight - box.height * seen.scale) / 2 - box.y * seen.scale;
  look();
}
// So large that it can be read, from the top.
function begin() {
  const box = all.getBBox();
  seen.scale = Math.min(1, Math.max(0.55, paper.clientWidth / (box.width + 20)));
  seen.x = 10 - box.x * seen.scale;
  const first = model.blocks.find((b) => b.c === 0);
  if (first && box.width * seen.scale > paper.clientWidth)
    seen.x = Math.min(seen.x, paper.clientWidth / 2 - (model.columns[0].at + first.x) * seen.scale);
  seen.y = 4;
  look();
}
function show(i) {
  const box = boxOf(model.items[i]);
  if (!box) return;
  if (seen.scale < 0.5) seen.scale = 0.8;
  seen.x = paper.clientWidth / 2 - (box.x + box.w / 2) * seen.scale;
  seen.y = paper.clientHeight / 2 - (box.y + box.h / 2) * seen.scale;
  look();
}

// --- Selecting.

let selected = null;
const aside = document.querySelector('aside');
const help = Array.from(aside.childNodes);

function make(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function jumps(title, items, className) {
  aside.append(make('h3', `${title} (${items.length})`));
  for (const i of items) {
    const button = make('button', `${model.items[i].t}  ${model.items[i].s}`, 'jump ' + className);
    button.addEventListener('click', () => select(i, true));
    aside.append(button);
  }
}

function unmark() {
  for (const node of document.querySelectorAll('.selected, .definition, .use'))
    node.classList.remove('selected', 'definition', 'use');
}

const columnTitle = (c) => element('c', c).querySelector('text').textContent;
// Unfolds what the item runs; folds it where all of that is unfolded.
function toggleBodies(i) {
  const bodies = model.items[i].o;
  if (bodies.some((c) => folded.column.has(c))) bodies.forEach((c) => folded.column.delete(c));
  else bodies.forEach((c) => folded.column.add(c));
  place();
  select(i, false);
}
function offerBodies(i) {
  const bodies = model.items[i].o || [];
  if (!bodies.length) return;
  const fold = bodies.every((c) => !folded.column.has(c));
  const button = make('button', (fold ? 'Fold ' : 'Unfold ') + bodies.map(columnTitle).join(', '),
                      'jump bodies');
  button.addEventListener('click', () => toggleBodies(i));
  aside.append(button);
}

// Of a kernel: what it computes, and its instructions.
function selectKernel(g) {
  select(null, false);
  element('g', g).classList.add('selected');
  aside.replaceChildren(make('h2', groupTitle(g)));
  if (model.groups[g].n) aside.append(make('pre', model.groups[g].n));
  const members = model.items.flatMap((item, i) => item.g === g ? [i] : []);
  jumps('instructions', members, 'member');
}

function select(i, jump) {
  unmark();
  selected = i;
  svg.classList.toggle('chosen', i !== null);
  if (i === null) {
    aside.replaceChildren(...help);
    return;
  }
  const item = model.items[i];
  if (folded.column.delete(item.c) | (item.g !== null && folded.group.delete(item.g))) place();
  element('i', i).classList.add('selected');
  const definitions = linksOf[i].above.map((l) => model.links[l].f);
  const uses = linksOf[i].below.map((l) => model.links[l].t);
  for (const l of linksOf[i].above)
    for (let k = l; k !== undefined; k = model.links[k].a)
      element('l', k).classList.add('definition');
  for (const l of linksOf[i].below) element('l', l).classList.add('use');
  for (const k of definitions) element('i', k).classList.add('definition');
  for (const k of uses) element('i', k).classList.add('use');
  aside.replaceChildren(make('h2', item.t));
  const list = make('dl');
  for (const [key, value] of item.d) list.append(make('dt', key), make('dd', value));
  aside.append(list);
  offerBodies(i);
  jumps('definitions', definitions, 'definition');
  jumps('uses', uses, 'use');
  if (jump) show(i);
}

// --- Searching.

const search = document.getElementById('search'), found = document.getElementById('found');
let matches = [], match = -1;
function find() {
  for (const i of matches) element('i', i).classList.remove('matched');
  const wanted = search.value.trim().toLowerCase();
  matches = wanted ? texts.flatMap((text, i) => text.includes(wanted) ? [i] : []) : [];
  match = -1;
  for (const i of matches) element('i', i).classList.add('matched');
  found.textContent = wanted ? `${matches.length} found` : '';
}
function next(step) {
  if (!matches.length) return;
  match = match < 0 && step < 0 ? matches.length - 1
                                : (match + step + matches.length) % matches.length;
  found.textContent = `${match + 1} of ${matches.length}`;
  select(matches[match], true);
}

// --- Folding.

function toggle(kind, i) {
  if (!folded[kind].delete(i)) folded[kind].add(i);
  place();
}
function foldAll() {
  const fold = folded.group.size < model.groups.length;
  folded.group.clear();
  if (fold) model.groups.forEach((group, g) => folded.group.add(g));
  place();
}

// --- Hands.

const numberOf = (node) => Number(node.id.slice(1));
function click(target) {
  const item = target.closest('.item');
  if (item) return select(numberOf(item), false);
  const group = target.closest('.group');
  if (group) {
    selectKernel(numberOf(group));
    if (target.tagName === 'text') toggle('group', numberOf(group));
    return undefined;
  }
  const column = target.closest('.column');
  if (column && (target.tagName === 'text' || folded.column.has(numberOf(column))))
    return toggle('column', numberOf(column));
  return select(null, false);
}
let drag = null;
paper.addEventListener('pointerdown', (e) => {
  if (e.button === 0) drag = {x: e.clientX, y: e.clientY, moved: false, target: e.target};
});
window.addEventListener('pointermove', (e) => {
  if (!drag) return;
  const dx = e.clientX - drag.x, dy = e.clientY - drag.y;
  if (!drag.moved && Math.abs(dx) + Math.abs(dy) < 4) return;
  drag.moved = true;
  paper.classList.add('dragging');
  seen.x += dx;
  seen.y += dy;
  drag.x = e.clientX;
  drag.y = e.clientY;
  look();
});
window.addEventListener('pointerup', () => {
  if (drag && !drag.moved) click(drag.target);
  drag = null;
  paper.classList.remove('dragging');
});
paper.addEventListener('dblclick', (e) => {
  const item = e.target.closest('.item');
  if (item && model.items[numberOf(item)].o) toggleBodies(numberOf(item));
});
paper.addEventListener('wheel', (e) => {
  e.preventDefault();
  const box = paper.getBoundingClientRect();
  if (e.shiftKey) {
    seen.x -= e.deltaY + e.deltaX;
    look();
  } else {
    zoom(Math.exp(-e.deltaY * 0.0015), e.clientX - box.x, e.clientY - box.y);
  }
}, {passive: false});

search.addEventListener('input', find);
const keys = {
  '/': () => search.focus(), n: () => next(1), N: () => next(-1), f: fit, g: foldAll, b: begin,
  '+': () => zoom(1.25), '-': () => zoom(0.8), Escape: () => select(null, false),
  ArrowUp: () => follow('above', 'f'), ArrowDown: () => follow('below', 't'),
};
function follow(side, end) {
  if (selected !== null && linksOf[selected][side].length)
    select(model.links[linksOf[selected][side][0]][end], true);
}
window.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.target === search) {
    if (e.key === 'Enter') next(e.shiftKey ? -1 : 1);
    if (e.key === 'Escape') search.blur();
    return;
  }
  if (!keys[e.key]) return;
  e.preventDefault();
  keys[e.key]();
});
const buttons = {fold: foldAll, fit, begin, larger: () => zoom(1.25), smaller: () => zoom(0.8)};
for (const [id, act] of Object.entries(buttons))
  document.getElementById(id).addEventListener('click', act);

svg.removeAttribute('viewBox');
svg.removeAttribute('width');
svg.removeAttribute('height');
place();
begin();
document.documentElement.dataset.ready = 'yes';
