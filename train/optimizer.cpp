#include "longhand/train/optimizer.h"

#include <algorithm>

#include "longhand/core/communicator.h"
#include "longhand/core/kernels/elementwise.h"
#include "longhand/core/parallel.h"
#include "longhand/core/view.h"

namespace longhand::train {

namespace {

/// Elements from … to - 1 of a dense tensor in the order of its memory, as a view of one axis.
Tensor flat_part(const Tensor& x, int64_t from, int64_t to) {
  return x.in_memory_order().reshape({x.numel()}).slice(0, from, to);
}

}  // namespace

Optimizer::Optimizer(Parameters parameters) : parameters_(std::move(parameters)) {
  for (const auto& [name, parameter] : parameters_)
    check<ShapeError>(parameter.value().is_dense(), "optimizer: ", name, " with shape ",
                      parameter.shape(), " and strides ", parameter.value().strides(),
                      ": expected a parameter that is dense in memory");
}

size_t Optimizer::add_moments(const std::string& prefix) {
  std::vector<Tensor> tensors;
  for (const auto& [name, parameter] : parameters_) {
    const Tensor& value = parameter.value();
    tensors.push_back(Tensor::empty_ordered(value.shape(), value.dtype(), value.strides()));
    tensors.back().fill(0);
  }
  moments_.emplace_back(prefix, std::move(tensors));
  return moments_.size() - 1;
}

void Optimizer::step(double lr, const Gradients& gradients, double scale) {
  check<ShapeError>(gradients.size() == parameters_.size(), "optimizer: ", gradients.size(),
                    " gradients for ", parameters_.size(), " parameters");
  // All gradients are checked before any parameter changes.
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    if (!gradients[i]) continue;
    check<ShapeError>(
        gradients[i].shape() == parameter.shape() && gradients[i].dtype() == parameter.dtype(),
        "optimizer: ", name, ": expected a gradient of ", parameter.dtype(), " ", parameter.shape(),
        ", got ", gradients[i].dtype(), " ", gradients[i].shape());
  }
  ++steps_;
  // Neighbouring small parameters share a task; large ones are divided further by update().
  std::vector<int64_t> begin{0};
  int64_t elements = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    elements += parameters_[i].second.value().numel();
    if (elements < kernels::elements_per_task / 2 && i + 1 < parameters_.size()) continue;
    begin.push_back(static_cast<int64_t>(i) + 1);
    elements = 0;
  }
  parallel_for(static_cast<int64_t>(begin.size()) - 1, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = begin[first]; i < begin[last]; ++i) {
      if (!gradients[i]) continue;
      const Tensor value = parameters_[i].second.value();
      const auto [from, to] = ranks_ ? range(i, ranks_->rank()) : Range{0, value.numel()};
      if (from < to)
        update({static_cast<size_t>(i), flat_part(value, from, to),
                flat_part(with_strides_of(gradients[i], value), from, to), value.shape()},
               lr, scale);
    }
  });
  if (ranks_) send_values();
}

void Optimizer::share(Communicator& ranks) {
  check(!ranks_, "optimizer: its state has been shared out already");
  if (ranks.size() == 1) return;
  first_ = {0};
  for (const auto& [name, parameter] : parameters_) {
    check<ShapeError>(parameter.dtype() == parameters_.front().second.dtype(), "optimizer: ", name,
                      " of ", parameter.dtype(), ": expected the dtype of all others, ",
                      parameters_.front().second.dtype());
    first_.push_back(first_.back() + parameter.value().numel());
  }
  ranks_ = &ranks;
  for (auto& [prefix, tensors] : moments_)
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto [from, to] = range(i, ranks.rank());
      tensors[i] = flat_part(tensors[i], from, to).clone();
    }
}

Optimizer::Range Optimizer::range(size_t i, int rank) const {
  // Equal parts of all elements, whichever parameters they belong to.
  const int64_t all = first_.back(), size = ranks_->size();
  const auto within = [&](int64_t r) {
    return std::clamp(all * r / size, first_[i], first_[i + 1]) - first_[i];
  };
  return {within(rank), within(rank + 1)};
}

void Optimizer::send_values() {
  const int size = ranks_->size();
  const int64_t most = (first_.back() + size - 1) / size;
  const DType dtype = parameters_.front().second.dtype();
  const auto for_parts = [&](int rank, auto f) {
    int64_t begin = 0;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const auto [from, to] = range(i, rank);
      if (from == to) continue;
      f(flat_part(parameters_[i].second.value(), from, to), begin, begin + to - from);
      begin += to - from;
    }
  };
  Tensor own = Tensor::empty({most}, dtype);
  for_parts(ranks_->rank(), [&](const Tensor& part, int64_t begin, int64_t end) {
    copy_into(own.slice(0, begin, end), part);
  });
  const Tensor all = ranks_->all_gather(own);
  for (int rank = 0; rank < size; ++rank)
    if (rank != ranks_->rank())
      for_parts(rank, [&](const Tensor& part, int64_t begin, int64_t end) {
        copy_into(Tensor(part), all.select(0, rank).slice(0, begin, end));
      });
}

nn::StateDict Optimizer::state_dict() const {
  nn::StateDict out;
  out["step"] = Tensor::from(std::vector<int64_t>{steps_}, {});
  for (const auto& [prefix, tensors] : moments_)
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& [name, parameter] = parameters_[i];
      const Tensor whole = ranks_ ? gathered(i, tensors[i]) : tensors[i];
      if (whole) out[prefix + "." + name] = whole;
    }
  return ranks_ && ranks_->rank() > 0 ? nn::StateDict() : out;
}

Tensor Optimizer::gathered(size_t i, const Tensor& part) const {
  const Tensor& value = parameters_[i].second.value();
  int64_t most = 0;
  for (int rank = 0; rank < ranks_->size(); ++rank)
    most = std::max(most, range(i, rank).end - range(i, rank).begin);
  Tensor own = Tensor::zeros({most}, value.dtype());
  copy_into(own.slice(0, 0, part.numel()), part);
  const Tensor all = ranks_->all_gather(own);
  if (ranks_->rank() > 0) return {};
  Tensor out = Tensor::empty_ordered(value.shape(), value.dtype(), value.strides());
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    const auto [from, to] = range(i, rank);
    copy_into(flat_part(out, from, to), all.select(0, rank).slice(0, 0, to - from));
  }
  return out;
}

void Optimizer::load_state_dict(const nn::StateDict& state) {
  check(!ranks_, "optimizer: its state has been shared out, and cannot be replaced");
  nn::StateDict own = state_dict();
  nn::check_state(own, state, "the optimizer");
  for (auto& [name, to] : own) copy_into(to, state.at(name));
  steps_ = *own.at("step").data<int64_t>();
}

void OptimizerOptions::describe(OptionVisitor& v) {
  v.choice("type", type, {"adamw", "adam", "sgd"}, "optimisation algorithm");
  double weight_decay = type == "adamw" ? 0.01 : 0;
  v.number("weight_decay", weight_decay, {0},
           "weight decay coefficient; with adamw: decoupled, scaled by the learning rate; "
           "otherwise: L2, added to the gradient",
           "0.01 with adamw, else 0.0");
  Decay decay = Decay::all;
  v.choice("decay", decay, {{"all", Decay::all}, {"matrices", Decay::matrices}},
           "parameters that weight decay applies to; matrices: those with at least 2 dimensions");
  sgd.weight_decay = adam.weight_decay = weight_decay;
  sgd.decay = adam.decay = decay;
  adam.decoupled = type == "adamw";
  v.when(type != "sgd", "type = \"adamw\" or \"adam\"", [&] {
    v.number("beta1", adam.beta1, NumberRange::fraction(),
             "decay rate of the running mean of gradients");
    v.number("beta2", adam.beta2, NumberRange::fraction(),
             "decay rate of the running mean of squared gradients");
    v.number("eps", adam.eps, NumberRange::above(0),
             "added to the denominator, the square root of the mean of squared gradients");
  });
  v.when(type == "sgd", "type = \"sgd\"", [&] {
    v.number("momentum", sgd.momentum, NumberRange::fraction(),
             "decay rate of the running sum of gradients");
    v.when(sgd.momentum > 0, "momentum above 0",
           [&] { v.boolean("nesterov", sgd.nesterov, "whether to use Nesterov momentum"); });
  });
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Parameters parameters) {
  if (options.type == "sgd") return make_sgd(std::move(parameters), options.sgd);
  check<ConfigError>(options.type == "adamw" || options.type == "adam",
                     "optimizer: expected type adamw, adam or sgd, got \"", options.type, "\"");
  return make_adam(std::move(parameters), options.adam);
}

}  // namespace longhand::train
