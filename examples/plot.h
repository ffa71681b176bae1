// Figures of the examples: panels of lines and points side by side, written as SVG.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "gradus/error.h"

namespace plot {

enum class Mark { line, dashes, points };

struct Series {
  std::string label;         // in the legend; empty: not there
  std::vector<double> x, y;  // of one length; what is not finite is left out
  Mark mark = Mark::line;
  int colour = -1;  // 0 to 5: blue, red, green, violet, ochre, grey; else its place among them
};

struct Panel {
  std::string title, x_label, y_label;
  std::vector<Series> series;
  bool log_y = false, log_x = false;  // powers of ten; values that are not positive are left out
};

namespace detail {

constexpr double panel_width = 400, panel_height = 320;
constexpr double left = 68, right = 14, top = 34, bottom = 48;
constexpr std::array colours{"#1f5fa8", "#c8501e", "#3a8a3f", "#8a4fa0", "#a3811b", "#4a4a4a"};

inline const char* colour_of(const Series& s, size_t place) {
  const auto own = static_cast<size_t>(s.colour);
  return colours[own < colours.size() ? own : place % colours.size()];
}

inline std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

template <class... T>
std::string format(const char* pattern, T... values) {
  char buffer[400];
  std::snprintf(buffer, sizeof buffer, pattern, values...);
  return buffer;
}

// One axis: what of the values is shown, and where.
struct Axis {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool log = false;
  double from = 0, to = 1;  // pixels

  bool shows(double v) const { return std::isfinite(v) && (!log || v > 0); }
  double scaled(double v) const { return log ? std::log10(v) : v; }
  void see(double v) {
    if (!shows(v)) return;
    low = std::min(low, scaled(v));
    high = std::max(high, scaled(v));
  }
  void settle() {
    if (low > high) low = 0, high = 1;
    double room = high > low ? 0.04 * (high - low) : std::max(0.5, 0.1 * std::abs(low));
    low -= room;
    high += room;
  }
  double at(double v) const { return from + (scaled(v) - low) / (high - low) * (to - from); }
  // Steps of 1, 2 or 5 times a power of ten, three to eight of them; powers, if logarithmic.
  std::vector<double> ticks() const {
    double raw = (high - low) / 8, power = std::pow(10.0, std::floor(std::log10(raw)));
    double step = power * (raw / power > 5 ? 10 : raw / power > 2 ? 5 : raw / power > 1 ? 2 : 1);
    if (log) step = std::max(1.0, std::round(step));
    std::vector<double> out;
    for (double t = std::ceil(low / step) * step; t <= high + 1e-9 * step; t += step)
      out.push_back(std::abs(t) < 1e-9 * step ? 0 : t);
    return out;
  }
};

inline std::string tick(const Axis& axis, double t) { return format(axis.log ? "1e%g" : "%g", t); }

inline void draw_axes(std::ostream& out, const Panel& p, const Axis& x, const Axis& y) {
  const double across = x.to - x.from, up = y.from - y.to;
  out << format("<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' class='frame'/>\n", x.from,
                y.to, across, up);
  for (double t : x.ticks()) {
    double at = x.from + (t - x.low) / (x.high - x.low) * across;
    out << format("<path d='M%.1f %.1fV%.1f' class='grid'/>", at, y.from, y.to)
        << format("<text x='%.1f' y='%.1f' class='mid'>", at, y.from + 15) << tick(x, t)
        << "</text>\n";
  }
  for (double t : y.ticks()) {
    double at = y.from - (t - y.low) / (y.high - y.low) * up;
    out << format("<path d='M%.1f %.1fH%.1f' class='grid'/>", x.from, at, x.to)
        << format("<text x='%.1f' y='%.1f' class='end'>", x.from - 5, at + 4) << tick(y, t)
        << "</text>\n";
  }
  const double middle = y.to + up / 2, label = x.from - left + 14;
  out << format("<text x='%.1f' y='%.1f' class='mid'>", x.from + across / 2, y.from + 36)
      << escaped(p.x_label) << "</text>\n"
      << format("<text x='%.1f' y='%.1f' class='mid' transform='rotate(-90 %.1f %.1f)'>", label,
                middle, label, middle)
      << escaped(p.y_label) << "</text>\n"
      << format("<text x='%.1f' y='%.1f' class='title'>", x.from + across / 2, y.to - 12)
      << escaped(p.title) << "</text>\n";
}

inline const char* style(Mark mark) {
  return mark == Mark::points ? "points" : mark == Mark::dashes ? "line dashes" : "line";
}

inline void draw_series(std::ostream& out, const Series& s, const char* colour, const Axis& x,
                        const Axis& y) {
  std::string path;
  bool pen = false;
  for (size_t i = 0; i < std::min(s.x.size(), s.y.size()); ++i) {
    const bool shown = x.shows(s.x[i]) && y.shows(s.y[i]);
    if (shown) path += format("%s%.1f %.1f", pen ? "L" : "M", x.at(s.x[i]), y.at(s.y[i]));
    if (shown && s.mark == Mark::points) path += "h0";  // round ends make it a point
    pen = shown && s.mark != Mark::points;
  }
  if (!path.empty())
    out << "<path d='" << path << "' class='" << style(s.mark) << "' stroke='" << colour << "'/>\n";
}

// In the upper corner where fewer points lie.
inline void draw_legend(std::ostream& out, const Panel& p, const Axis& x, const Axis& y) {
  size_t longest = 0, rows = 0;
  for (const Series& s : p.series)
    if (!s.label.empty()) longest = std::max(longest, s.label.size()), ++rows;
  if (rows == 0) return;
  const double width = 38 + 6.4 * static_cast<double>(longest);
  const double height = 15.0 * static_cast<double>(rows) + 4;
  int balance = 0;  // how many more lie on the right
  for (const Series& s : p.series)
    for (size_t i = 0; i < std::min(s.x.size(), s.y.size()); ++i) {
      if (!x.shows(s.x[i]) || !y.shows(s.y[i]) || y.at(s.y[i]) > y.to + height + 10) continue;
      balance += x.at(s.x[i]) > x.to - width - 10;
      balance -= x.at(s.x[i]) < x.from + width + 10;
    }
  const double at = balance > 0 ? x.from + 4 : x.to - width - 4;
  double row = y.to + 5;
  out << format("<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' class='legend'/>\n", at, row,
                width, height);
  for (size_t i = 0; i < p.series.size(); ++i) {
    const Series& s = p.series[i];
    if (s.label.empty()) continue;
    row += 15;
    const bool point = s.mark == Mark::points;
    out << format("<path d='M%.1f %.1fh%d' class='%s' stroke='%s'/>", at + (point ? 15 : 5),
                  row - 4, point ? 0 : 20, style(s.mark), colour_of(s, i))
        << format("<text x='%.1f' y='%.1f'>", at + 30, row) << escaped(s.label) << "</text>\n";
  }
}

inline void draw_panel(std::ostream& out, const Panel& p, double x0, double y0) {
  Axis x{.log = p.log_x, .from = x0 + left, .to = x0 + panel_width - right};
  Axis y{.log = p.log_y, .from = y0 + panel_height - bottom, .to = y0 + top};
  for (const Series& s : p.series)
    for (size_t i = 0; i < std::min(s.x.size(), s.y.size()); ++i)
      if (x.shows(s.x[i]) && y.shows(s.y[i])) x.see(s.x[i]), y.see(s.y[i]);
  x.settle();
  y.settle();
  draw_axes(out, p, x, y);
  for (size_t i = 0; i < p.series.size(); ++i)
    draw_series(out, p.series[i], colour_of(p.series[i], i), x, y);
  draw_legend(out, p, x, y);
}

}  // namespace detail

// Writes the panels in a row. Throws gradus::Error where the file cannot be written.
inline void write_svg(const std::string& path, std::span<const Panel> panels) {
  using namespace detail;
  const double width = panel_width * static_cast<double>(panels.size());
  std::ofstream out(path);
  out << format("<svg xmlns='http://www.w3.org/2000/svg' width='%g' height='%g' ", width,
                panel_height)
      << format("viewBox='0 0 %g %g'>\n", width, panel_height)
      << "<style>text{font:11px sans-serif;fill:#222}.mid{text-anchor:middle}"
         ".end{text-anchor:end}.title{text-anchor:middle;font-weight:bold;font-size:12px}"
         ".frame{fill:none;stroke:#444}.grid{stroke:#ddd;fill:none}"
         ".line{fill:none;stroke-width:1.6}.dashes{stroke-dasharray:5 4}"
         ".points{fill:none;stroke-width:3.6;stroke-linecap:round;stroke-opacity:.55}"
         ".legend{fill:#fff;fill-opacity:.85;stroke:#ccc}"
         "</style>\n<rect width='100%' height='100%' fill='#fff'/>\n";
  for (size_t i = 0; i < panels.size(); ++i)
    draw_panel(out, panels[i], panel_width * static_cast<double>(i), 0);
  out << "</svg>\n";
  out.close();
  if (!out) throw gradus::Error("cannot write '{}'; is its folder there, and writable?", path);
}

}  // namespace plot
