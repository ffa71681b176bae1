// The search: sections of all pages in which each word of the query begins some word. The index is
// loaded at the first search.
const box = document.getElementById("search"), list = document.getElementById("found");
const most = 30;

function beginning(word) {
  const text = word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return new RegExp("(?<![\\p{L}\\p{N}])" + text, "giu");
}

// A word in a heading counts more than one in the text, and a whole word more than a beginning.
function score(patterns, page, heading, text) {
  let sum = 0;
  for (const pattern of patterns) {
    const at = heading.search(pattern), end = at < 0 ? 0 : at + heading.match(pattern)[0].length;
    const found = (at < 0 ? 0 : /^[\p{L}\p{N}]/u.test(heading.slice(end)) ? 10 : 20) +
      (page.search(pattern) < 0 ? 0 : 4) + Math.min((text.match(pattern) || []).length, 5);
    if (!found) return 0;
    sum += found;
  }
  return sum;
}

function element(tag, text, parent) {
  const made = document.createElement(tag);
  made.textContent = text;
  parent.append(made);
  return made;
}

function show([, file, place, page, heading, text], pattern) {
  const link = element("a", page === heading ? page : page + " › " + heading, element("li", "", list));
  link.href = box.dataset.root + file + "#" + place;
  const at = Math.max(text.search(pattern), 0), begin = Math.max(at - 60, 0);
  const excerpt = element("p", begin ? "…" + text.slice(begin, at) : text.slice(0, at), link);
  const [word] = text.slice(at).match(pattern) || [""];
  element("mark", word, excerpt);
  excerpt.append(text.slice(at + word.length, at + 120));
}

function search() {
  const patterns = box.value.trim().split(/\s+/).filter(Boolean).map(beginning);
  const found = [];
  if (patterns.length)
    for (const [file, page, sections] of search_index)
      for (const [place, heading, text] of sections) {
        const points = score(patterns, page, heading, text);
        if (points) found.push([points, file, place, page, heading, text]);
      }
  found.sort((a, b) => b[0] - a[0]);
  list.replaceChildren();
  for (const one of found.slice(0, most)) show(one, patterns[0]);
  if (patterns.length && !found.length) element("li", "Nothing found", list);
  list.hidden = !patterns.length;
}

function begin() {
  if (typeof search_index !== "undefined") return search();
  if (begin.loading) return;
  begin.loading = element("script", "", document.head);
  begin.loading.onload = search;
  begin.loading.src = box.dataset.root + "search-index.js";
}

box.addEventListener("input", begin);
box.addEventListener("focus", begin);
addEventListener("keydown", (event) => {
  const links = [...list.querySelectorAll("a")], at = links.indexOf(document.activeElement);
  const inside = document.activeElement === box || at >= 0;
  if (event.key === "/" && !inside) box.focus();
  else if (event.key === "Escape" && inside) list.hidden = true, document.activeElement.blur();
  else if (event.key === "ArrowDown" && inside) (links[at + 1] || links[at] || box).focus();
  else if (event.key === "ArrowUp" && inside) (links[at - 1] || box).focus();
  else if (event.key === "Enter" && inside && at < 0 && links.length) links[0].click();
  else return;
  event.preventDefault();
});
addEventListener("click", (event) => {
  if (!list.contains(event.target) && event.target !== box) list.hidden = true;
});
