// Optimizers: SGD, Adam, AdamW and Muon.
#pragma once

#include <memory>
#include <string>

#include "longhand/core/schema.h"
#include "longhand/train/step/optimizer.h"

namespace longhand::train {

/// Parameters that weight decay applies to.
enum class Decay {
  all,
  matrices,  // of rank 2 and higher: no biases, no norm weights
};

struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;  // L2: added to the gradient
  Decay decay = Decay::all;
};

/// Stochastic gradient descent with momentum: b <- mu b + g, theta <- theta - lr b or, with
/// nesterov, theta <- theta - lr (g + mu b). Polyak 1964; Sutskever et al. 2013, with the learning
/// rate outside b, so that schedules take effect immediately.
std::unique_ptr<Optimizer> make_sgd(Parameters parameters, const SgdOptions& options = {});

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;  // added to sqrt(v / (1 - beta2^t)), after bias correction
  double weight_decay = 0;
  bool decoupled = true;  // AdamW; false: L2, added to the gradient
  Decay decay = Decay::all;
};

/// Adam: Kingma & Ba 2015 (arXiv 1412.6980), algorithm 1; AdamW: Loshchilov & Hutter 2019 (arXiv
/// 1711.05101), algorithm 2 with the decay multiplied by the learning rate, as is usual. Throws
/// ConfigError unless 0 <= beta < 1 and eps > 0, and if a beta is too close to 1 for the
/// parameters' dtype: 1 - beta below 9.5e-7 in f32, 1.8e-15 in f64.
std::unique_ptr<Optimizer> make_adam(Parameters parameters, const AdamOptions& options = {});

struct MuonOptions {
  double momentum = 0.95;
  AdamOptions others{};  // for all other parameters; weight_decay applies to matrices too
};

/// Muon orthogonalises the updates of matrices by a Newton-Schulz iteration (Jordan et al. 2024,
/// https://kellerjordan.github.io/posts/muon), with Nesterov momentum, and scales them by 0.2
/// sqrt(max(rows, columns)) to the size of AdamW's updates, so that one learning rate fits both
/// (Liu et al. 2025, arXiv 2502.16982, eq. 4). AdamW updates all other parameters: vectors,
/// embeddings (embeddings.…) and the output head (head.…). The state cannot be divided. Throws
/// ConfigError as make_adam(), and unless 0 <= momentum < 1.
std::unique_ptr<Optimizer> make_muon(Parameters parameters, const MuonOptions& options = {});

/// The options of the section [optimizer], except those of the schedule.
struct OptimizerOptions {
  std::string type = "adamw";  // adamw | adam | muon | sgd
  SgdOptions sgd{};            // with type sgd
  MuonOptions muon{};          // with type muon, except for `others`
  AdamOptions adam{};          // with the other types, and for `others`

  void describe(OptionVisitor& v);
};
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Parameters parameters);

}  // namespace longhand::train
