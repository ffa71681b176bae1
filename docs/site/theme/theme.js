// Light or dark: as the system, until the button chooses; the choice is kept.
const system = matchMedia("(prefers-color-scheme: dark)");
let chosen;
try { chosen = localStorage.theme; } catch { /* kept for this page alone */ }

function paint() {
  document.documentElement.dataset.theme = chosen || (system.matches ? "dark" : "light");
}

function toggle() {
  chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.theme = chosen; } catch { /* likewise */ }
  paint();
}

system.addEventListener("change", paint);
paint();
