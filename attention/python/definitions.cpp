// longhand.definitions: the formulas of attention/definitions, on arrays.
#include "longhand/attention/definitions/definitions.h"

#include "longhand/attention/python/arrays.h"

namespace longhand::python {

void define_definitions(py::module_& m) {
  namespace def = attention::definitions;
  using namespace py::literals;
  py::module_ d =
      m.def_submodule("definitions",
                      "What variants compute, as weights (B, H, N, M) of queries q (B, "
                      "N, H, D) and keys k (B, M, H, D): composed operations in the order of the "
                      "formula, in quadratic time and memory. attention/definitions/definitions.h "
                      "has the formulas and their papers.");

  d.def(
      "visible",
      [](int64_t queries, int64_t keys, bool causal, const Tensor& lengths, int64_t window,
         int64_t globals, int64_t dilation) {
        return def::visible(queries, keys, {causal, lengths, window, globals, dilation});
      },
      "queries"_a, "keys"_a, py::kw_only(), "causal"_a = false, none("lengths"), "window"_a = -1,
      "globals"_a = 0, "dilation"_a = 1,
      "Which keys are visible to a query: (B or 1, 1, N, M) uint8. lengths are int32.");
  d.def("apply", &def::apply, "weights"_a, "v"_a, "The result W V: (B, N, H, E).");

  d.def("softmax", &def::softmax, "q"_a, "k"_a, "visible"_a, "scale"_a = 0, none("bias"));
  d.def("forgetting", &def::forgetting, "q"_a, "k"_a, "log_decay"_a, "visible"_a);
  d.def("path", &def::path, "q"_a, "k"_a, "w"_a, "beta"_a, "log_decay"_a, "visible"_a);
  d.def("half", &def::half, "x"_a, "s"_a);
  d.def("differential", &def::differential, "q"_a, "k"_a, "lambda_"_a, "visible"_a);
  d.def("topk", &def::topk, "q"_a, "k"_a, "count"_a, "visible"_a);
  d.def("moba", &def::moba, "q"_a, "k"_a, "block"_a, "count"_a, "visible"_a);
  d.def("reformer", &def::reformer, "q"_a, "R"_a, "window"_a, "visible"_a);
  d.def("clustered", &def::clustered, "q"_a, "k"_a, "clusters"_a, "topk"_a);
  d.def("eva", &def::eva, "q"_a, "k"_a, "window"_a, "chunk"_a, "causal"_a);
  d.def("lara", &def::lara, "q"_a, "k"_a, "landmarks"_a, "balance"_a);
  d.def("scatterbrain", &def::scatterbrain, "q"_a, "k"_a, "features_q"_a, "features_k"_a,
        "window"_a, "visible"_a);
  d.def("latent", &def::latent, "q"_a, "k"_a, "L"_a, "visible"_a);
  d.def("linformer", &def::linformer, "q"_a, "k"_a, "E"_a, "F"_a);
  d.def("nystrom", &def::nystrom, "q"_a, "k"_a, "landmarks"_a, "iterations"_a = 0);
  d.def("svd", &def::svd, "q"_a, "k"_a, "rank"_a, "visible"_a);

  d.def("of_features", &def::of_features, "features_q"_a, "features_k"_a, "visible"_a);
  d.def("linear_features", &def::linear_features, "map"_a, "x"_a, "max_length"_a = 0, none("A"));
  d.def("dpfp_features", &def::dpfp_features, "x"_a, "nu"_a);
  d.def("rebased_features", &def::rebased_features, "x"_a, "scale"_a, "shift"_a);
  d.def("t2r_features", &def::t2r_features, "x"_a, "W"_a, "b"_a);
  d.def("performer_features", &def::performer_features, "kernel"_a, "x"_a, "W"_a, "eps"_a = 0,
        none("phases"));
  d.def("gaussian_features", &def::gaussian_features, "x"_a, "W"_a, none("phases"));

  d.def("efficient", &def::efficient, "q"_a, "k"_a, "visible"_a);
  d.def("gaussian", &def::gaussian, "q"_a, "k"_a, "visible"_a, "sigma"_a = 1,
        "normalized"_a = true);
  d.def("sigmoid", &def::sigmoid, "q"_a, "k"_a, "visible"_a, "bias"_a);
  d.def("skyformer", &def::skyformer, "q"_a, "k"_a, "landmarks"_a, "sigma"_a = 1, "gamma"_a = 0);

  d.def("retention", &def::retention, "q"_a, "k"_a, none("log_decay"));
  d.def("log_linear", &def::log_linear, "q"_a, "k"_a, "log_decay"_a, "scales"_a);
  d.def("delta", &def::delta, "q"_a, "k"_a, "beta"_a, none("log_decay"), none("read"));
  d.def("rwkv7", &def::rwkv7, "q"_a, "read"_a, "removed"_a, "written"_a, "log_decay"_a);
  d.def("mesa", &def::mesa, "q"_a, "k"_a, "beta"_a, "log_decay"_a, "lambda_"_a);
  d.def("mamba3", &def::mamba3, "q"_a, "k"_a, "steps"_a, "blends"_a, "log_decay"_a, "angles"_a);

  d.def("lowrank", &def::lowrank, "U"_a, "V"_a, "softmax"_a, "visible"_a);
  d.def("synthesizer", &def::synthesizer, "hidden"_a, "W"_a, "b"_a, "visible"_a);
  d.def("aft", &def::aft, "q"_a, "k"_a, "v"_a, "w"_a, "visible"_a,
        "The result, since the weights of channels differ.");
  d.def("random", &def::random, "R"_a, "visible"_a);
  const auto of_visible = [&](const char* name, Variable (*of)(const Tensor&, DType)) {
    d.def(
        name,
        [of](const Tensor& visible, const std::string& dtype) {
          return of(visible, float_dtype(dtype));
        },
        "visible"_a, "dtype"_a = "float64");
  };
  of_visible("mean", &def::mean);
  of_visible("none", &def::none);
}

}  // namespace longhand::python
