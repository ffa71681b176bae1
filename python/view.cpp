// Drawings of programs: what `gradus view` draws.
#include <set>

#include "gradus/attributes.h"
#include "gradus/code.h"
#include "gradus/messages.h"
#include "python/bindings.h"
#include "python/program.h"
#include "tools/view/scene.h"

namespace gradus::python {

namespace {

using nb::literals::operator""_a;

struct View {
  view::Picture picture;  // arranged
};

View view_of(const Program& p, const DimSizes& sizes, const std::optional<int64_t>& memory_budget,
             bool written) {
  require_dimensions(p.graph(), sizes);
  if (written && memory_budget)
    throw Error("view: a memory budget is for what is compiled; give it or written=True");
  return unlocked([&] {
    View v;
    if (written) {
      v.picture = view::picture_of(p.graph(), {});
    } else {
      CompileOptions options;
      if (memory_budget) options.memory_budget = {*memory_budget, sizes};
      auto code = Code::compile(p.graph(), options);
      v.picture = view::picture_of(code->graph(), view::overlay_of(*code, sizes));
    }
    view::arrange(v.picture);
    return v;
  });
}

// Within a page that has more than the drawing: its style is for it alone.
std::string html_of(const View& v) {
  return "<div style=\"overflow: auto; max-height: 40em; background: #fff\">\n" +
         to_svg(v.picture, "#drawing ") + "</div>\n";
}

// Each graph once, however many instructions run it.
size_t count_instructions(const ir::Graph& graph, std::set<const ir::Graph*>& counted) {
  if (!counted.insert(&graph).second) return 0;
  size_t count = 0;
  for (const ir::Stage& stage : graph.stages) {
    count += stage.nodes.size();
    for (const ir::Node& node : stage.nodes) {
      if (!node.op->graphs || !node.attributes) continue;
      for (const ops::GraphName* name : node.op->graphs(node.attributes))
        if (name->graph) count += count_instructions(*name->graph, counted);
    }
  }
  return count;
}

}  // namespace

void add_views(nb::module_& m, nb::class_<Program>& program) {
  nb::class_<View>(m, "View", "The drawing of a program, as `gradus view` makes it.")
      .def_prop_ro(
          "svg", [](const View& v) { return to_svg(v.picture); }, "The text of an .svg file.")
      .def_prop_ro("html", html_of, "The drawing as a part of a page, which scrolls.")
      .def("_repr_html_", html_of)
      .def("__repr__", [](const View& v) {
        return fmt::format("<View of '{}', {} boxes>", printable(v.picture.title),
                           v.picture.items.size());
      });
  program
      .def("view", view_of, "sizes"_a = DimSizes(), "memory_budget"_a = nb::none(),
           "written"_a = false,
           "Draws the stages as they are compiled, with the kernels that are planned for these "
           "`sizes` (others are 256) and what is held between stages; with `written`, the program "
           "before it is compiled. A notebook shows the drawing.")
      .def_prop_ro(
          "instructions",
          [](const Program& p) {
            std::set<const ir::Graph*> counted;
            return count_instructions(p.graph(), counted);
          },
          "The number of instructions of all stages, and of the graphs that loops and branches "
          "run.")
      .def("_repr_html_", [](nb::handle self) {
        IntoPython scope;
        return nb::module_::import_("gradus._display").attr("program_html")(self);
      });
}

}  // namespace gradus::python
