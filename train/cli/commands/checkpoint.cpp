// longhand checkpoint: lists the contents of checkpoints, verifies, compares and repairs them, and exchanges weights
// with other programs.
#include <limits>

#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/run/repair.h"
#include "longhand/train/run/run_record.h"
#include "longhand/train/transfer/compare.h"
#include "longhand/train/transfer/weights.h"

namespace longhand::cli {
namespace {

/// How many numbers a state holds.
int64_t numbers(const nn::StateDict& state) {
  int64_t sum = 0;
  for (const auto& [name, tensor] : state) sum += tensor.numel();
  return sum;
}

/// The dtype and the shape of a tensor.
Json json_of_type(const Tensor& tensor) {
  return {{"dtype", std::string(name_of(tensor.dtype()))},
          {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())}};
}

// ---- inspect and verify

struct CheckpointArguments : Common {
  std::string file, all;
  std::vector<std::string> files;
};

/// A field with what a state holds, and its text.
void add(Answer& out, const std::string& name, const nn::StateDict& state) {
  out.add(name, list_of(state, [](const auto& each) -> Json {
            Json named = {{"name", each.first}};
            named.update(json_of_type(each.second));
            return named;
          }));
  if (state.empty()) return;
  out.print("\n{}: {} tensors, {} numbers\n", name == "ema" ? "averaged weights" : name,
            state.size(), with_commas(numbers(state)));
  for (const auto& [tensor_name, tensor] : state)
    out.print("  {:<48} {:<4} {}\n", tensor_name, name_of(tensor.dtype()),
              concat_message(tensor.shape()));
}

int inspect(const CheckpointArguments& a) {
  // load() verifies the digest before anything else.
  const train::Checkpoint checkpoint = train::load(a.file);
  const train::TrainingState& state = checkpoint.training;
  Answer out(a.json);
  out.add("file", a.file)
      .add("digest", "ok")
      .add("written_by", Json{{"version", checkpoint.version}, {"machine", checkpoint.machine}})
      .add("step", state.step)
      .add("seed", state.seed)
      .add("epoch", state.cursor.epoch)
      .add("batch", state.cursor.batch)
      .text("file     {file}\ndigest   ok\n")
      .print("version  {}\nmachine  {}\n", checkpoint.version, checkpoint.machine)
      .text("step     {step}\nseed     {seed}\nnext     batch {batch} of epoch {epoch}\n");
  if (state.best) out.print("best     {} after step {}\n", *state.best, state.best_step);
  add(out, "model", checkpoint.model);
  add(out, "optimizer", checkpoint.optimizer);
  add(out, "ema", checkpoint.ema);
  out.add("config", checkpoint.config).add("best", state.best);
  if (state.best) out.add("best_step", state.best_step);
  return out.text("\nconfiguration:\n{config}").end();
}

int verify(const CheckpointArguments& a) {
  check<ConfigError>(a.files.empty() != a.all.empty(),
                     "checkpoint verify: expected FILE... or --all DIR");
  for (const std::string& file : a.files)
    check<ConfigError>(!fs::is_directory(file), file,
                       ": expected a checkpoint file, got a folder; for all checkpoints in it: "
                       "longhand checkpoint verify --all ",
                       shell_word(file));
  const std::vector<std::string> files = a.all.empty() ? a.files : train::checkpoints_below(a.all);
  Answer out(a.json);
  Json found = Json::array();
  int64_t invalid = 0;
  for (const std::string& file : files) {
    Json& each = found.emplace_back(Json{{"file", file}, {"valid", true}});
    try {
      each["step"] = train::load(file).training.step;
      out.literal(
          one_line(fmt::format("ok       {} (step {})", file, each["step"].get<int64_t>())) + "\n");
    } catch (const DataError& error) {
      each["valid"] = false;
      each["reason"] = error.what();
      out.literal(one_line("invalid  " + bounded(error.what(), 1000)) + "\n");
      ++invalid;
    }
  }
  out.add("files", found).add("invalid", invalid).end();
  check<DataError>(invalid == 0, invalid, " of ", counted(std::ssize(files), "checkpoint"),
                   invalid == 1 ? " is invalid" : " are invalid");
  return success;
}

// ---- diff

struct CheckpointDiffArguments : Common {
  std::vector<std::string> files;
  train::CompareOptions options;
  bool all = false;
};

std::string shape_and_type(const Tensor& tensor) {
  if (!tensor.defined()) return "-";
  return fmt::format("{} {}", name_of(tensor.dtype()), concat_message(tensor.shape()));
}

train::Table table_of(const train::ComparedState& part, const CheckpointDiffArguments& a) {
  train::Table out{.name = "tensors", .title = part.name};
  std::vector<const train::TensorDifference*> order;
  for (const auto& each : part.tensors)
    if (a.all || !each.is_within(a.options.tolerance)) order.push_back(&each);
  // What cannot be compared first, then the largest differences.
  const auto key = [](const train::TensorDifference* each) {
    const bool huge = !each->same_shape() || !each->same_dtype() || !std::isfinite(each->largest);
    return huge ? std::numeric_limits<double>::infinity() : each->largest;
  };
  std::ranges::stable_sort(order, [&](const auto* x, const auto* y) { return key(x) > key(y); });
  for (const auto* each : order) {
    const bool same = each->same_shape();
    const auto if_same = [&](auto value) { return same ? train::Cell{value} : train::Cell{}; };
    add_row(out,
            {{"tensor", each->name},
             {"first", shape_and_type(each->first), "in A"},
             {"second", same && each->same_dtype() ? "same" : shape_and_type(each->second), "in B"},
             {"differing", if_same(each->differing), "values that differ"},
             {"largest", if_same(each->largest), "largest |a - b|", 3},
             {"relative", if_same(each->relative), "|a - b| / |a|", 3}});
  }
  return out;
}

Json to_json(const train::TensorDifference& each) {
  const auto side = [](const Tensor& tensor) {
    return tensor.defined() ? json_of_type(tensor) : Json();
  };
  Json out = {{"name", each.name}, {"a", side(each.first)}, {"b", side(each.second)}};
  if (each.same_shape()) {
    out["differing"] = each.differing;
    out["largest"] = json_number(each.largest);
    out["relative"] = json_number(each.relative);
  }
  return out;
}

int diff(const CheckpointDiffArguments& a) {
  check<ConfigError>(a.files.size() == 2, "checkpoint diff: expected two files or runs, got ",
                     a.files.size());
  const train::Comparison found = train::compare(a.files[0], a.files[1], a.options);
  const auto text = [](const std::optional<OptionValue>& value) {
    return value ? to_string(*value) : std::string("-");
  };
  Answer out(a.json);
  out.add("a", found.first)
      .add("b", found.second)
      .add("equal", found.equal)
      .text("A  {a}\nB  {b}\n");
  Json tensors, other = Json::object();
  for (const auto& [name, values] : found.other) {
    other[name] = {text(values.first), text(values.second)};
    out.print("{}: {} in A, {} in B\n", name, text(values.first), text(values.second));
  }
  for (const train::ComparedState& part : found.states) {
    int64_t different = 0;
    Json& list = tensors[part.name] = Json::array();
    for (const auto& each : part.tensors) {
      const bool differs = !each.is_within(a.options.tolerance);
      different += differs;
      if (a.all || differs) list.push_back(to_json(each));
    }
    if (part.tensors.empty()) continue;
    if (part.in_first == 0 || part.in_second == 0) {
      out.print("\n{}: {} tensors in A, {} in B\n", part.name, part.in_first, part.in_second);
      continue;
    }
    out.print("\n{}: {} of {} tensors differ\n", part.name, different, part.tensors.size());
    if (const train::Table table = table_of(part, a); !table.rows.empty())
      out.literal("\n").table(table);
  }
  return out.add("tensors", tensors).add("other", other).end(found.equal ? success : failure);
}

// ---- export and import

struct ExportArguments : Common {
  std::string part = "weights", names = "longhand";
};

struct ImportArguments : Common {
  std::string file, config;
  train::ImportOptions options;
};

int export_checkpoint(const ExportArguments& a) {
  check<ConfigError>(train::is_tensor_file(a.out), "-o ", a.out,
                     ": expected a name that ends in .safetensors or .npz");
  const train::SavedModel saved = train::load_model(a.run, a.checkpoint);
  train::TensorFile file = train::export_part(saved.checkpoint, a.part, a.names);
  file.metadata["writer"] = "longhand checkpoint export";
  train::write_tensor_file(a.out, file);
  return Answer(a.json)
      .add("checkpoint", saved.file)
      .add("part", a.part)
      .add("tensors", file.tensors.size())
      .add("numbers", numbers(file.tensors))
      .add("out", a.out)
      .text(
          "written  {out}: {tensors} tensors, {numbers:,} numbers, {part} of {checkpoint} after "
          "step ")
      .print("{}\n", saved.checkpoint.training.step)
      .end();
}

/// The configuration of the model: that of the user, completed by its data, or the one in the file.
train::Config config_for(const ImportArguments& a, const train::TensorFile& file) {
  if (!a.config.empty()) {
    train::Config config = train::Config::load(a.config);
    apply(a, config);
    train::check_config(config);
    const std::vector<std::string> sizes = {"vocabulary", "classes", "per_token", "max_length"};
    const auto is_given = [&](const std::string& key) { return config.model().has(key); };
    if (std::ranges::all_of(sizes, is_given)) return config;
    std::optional<data::TaskInfo> task = train::read_task_info(config);
    const Waiting waiting(a.json, "reading data");
    if (!task) task = train::read_task(config).info;
    return train::Config::parse(train::effective_config(config, &*task), a.config);
  }
  const auto stored = file.metadata.find("config");
  check<ConfigError>(stored != file.metadata.end(), a.file,
                     " has no configuration, because Longhand did not write it: describe the model "
                     "with --config CONFIG.toml");
  train::Config config = train::Config::parse(stored->second, a.file + ": config");
  // What others wrote could name any file, which commands that use the model would open.
  if (!a.trust_paths)
    train::SavedModel{a.file, {}, config, ""}.check_paths(
        {"data.path", "train.init_from", "train.distill_from"}, &a.set);
  apply(a, config);
  return config;
}

/// Whose names the file has, and what the weights do not show.
std::string names_line(const train::Imported& imported, bool given) {
  if (!imported.names) return "";
  const attention::TransformerConfig& model = imported.model;
  std::string assumed = concat_message("norm = ", model.norm,
                                       ", norm_eps = ", model.norm_eps > 0 ? model.norm_eps : 1e-5);
  for (const auto& [option, value] : train::options_of_model(model))
    if (option == "mlp") assumed += ", mlp = " + to_string(value.value);
  return concat_message("names        ", imported.names->title,
                        given ? "" : ", recognised (--names says otherwise)", "\nassumed      ",
                        assumed, ": tensors do not show them\n");
}

int import_weights(const ImportArguments& a) {
  check<ConfigError>(train::is_tensor_file(a.file), a.file,
                     ": expected a file whose name ends in .safetensors or .npz");
  train::check_model_path(a.out);
  const train::TensorFile file = train::read_tensor_file(a.file);
  const train::Imported imported =
      train::import_weights(file, config_for(a, file), a.file, a.options);
  train::write_model(a.out, imported.checkpoint);
  const train::Fresh& tensors = imported.tensors;
  Answer out(a.json);
  out.add("file", a.file)
      .add("out", a.out)
      .add("parameters", imported.parameters)
      .add("taken", tensors.taken)
      .add("initialised", tensors.initialised)
      .add("unused", tensors.unused)
      .add("names", imported.names ? imported.names->name : "longhand")
      .literal(names_line(imported, !a.options.names.empty()) + "taken        " +
               train::short_list(tensors.taken) + "\n");
  if (!tensors.initialised.empty())
    out.literal("initialised  " + train::short_list(tensors.initialised) + "\n");
  if (!tensors.unused.empty())
    out.literal("unused       " + train::short_list(tensors.unused) + "\n");
  return out.text("written      {out}: {parameters:,} parameters\n").end();
}

// ---- repair

int repair(const Common& a) {
  const train::Repair done = train::repair(a.run);
  const auto name = [](const fs::path& file) {
    return file.empty() ? std::nullopt : std::optional(file.string());
  };
  // Other models, as longhand convert writes them, have no state of an optimizer.
  const fs::path folder = a.run;
  const bool is_trained =
      !done.step || fs::exists(folder / "metrics.jsonl") || fs::exists(folder / "summary.json");
  const std::string run = shell_word(a.run);
  Answer out(a.json);
  out.add("run", a.run)
      .add("changed", done.changed())
      .add("step", done.step)
      .add("last_from", name(done.last_from))
      .add("best_from", name(done.best_from))
      .add("set_aside", list_of(done.set_aside,
                                [](const train::SetAside& each) -> Json {
                                  return {{"file", each.file.string()},
                                          {"reason", each.reason},
                                          {"kept_as", each.kept_as.string()}};
                                }))
      .add("notes", done.notes);
  for (const train::SetAside& each : done.set_aside)
    out.print("kept      {} as {}: {}\n", each.file.string(), each.kept_as.filename().string(),
              bounded(each.reason, 1000));
  if (!done.last_from.empty()) out.text("restored  last.h5 from {last_from}, after step {step}\n");
  if (!done.best_from.empty()) out.text("restored  best.h5 from {best_from}\n");
  out.each("notes", "note      {}\n")
      .literal(done.changed() ? "repaired: " : "in order: ")
      .text(done.step ? "last.h5 is of step {step}"
                      : "it has not saved a checkpoint yet, and starts from the beginning")
      .literal("; continue with longhand train " +
               (is_trained ? "--resume " + run
                           : shell_word(folder / "config.toml") + " --init-from " + run) +
               "\n");
  return out.end();
}

}  // namespace

void add_checkpoint(Command& program) {
  auto [c, a] = program.command<CheckpointArguments>("checkpoint inspect", inspect);
  c.add("file", a->file).required();
  c.common(*a, "json");
  auto [verify_all, v] = program.command<CheckpointArguments>("checkpoint verify", verify);
  verify_all.add("files", v->files);
  verify_all.add("--all", v->all);
  verify_all.common(*v, "json");

  auto [differences, d] = program.command<CheckpointDiffArguments>("checkpoint diff", diff);
  differences.add("files", d->files).required();
  differences.add("--checkpoint", d->options.checkpoint);
  differences.add("--tolerance", d->options.tolerance).not_negative();
  differences.flag("--weights", d->options.weights);
  differences.flag("--all", d->all);
  differences.common(*d, "json");

  auto [to, e] = program.command<ExportArguments>("checkpoint export", export_checkpoint);
  to.common(*e, "run");
  to.out(e->out, [](const auto& file) {
      return is_tensor_file_of(file, "longhand checkpoint export");
    }).required();
  to.common(*e, "checkpoint");
  to.add("--part", e->part);
  to.add("--names", e->names);
  to.common(*e, "json");

  auto [from, i] = program.command<ImportArguments>("checkpoint import", import_weights);
  from.add("file", i->file).required();
  from.add("--out", i->out).required();
  from.add("--config", i->config);
  from.common(*i, "set");
  from.add("--names", i->options.names);
  from.add("--prefix", i->options.prefix);
  from.add("--rename", i->options.rename).repeated();
  from.flag("--partial", i->options.partial);
  from.common(*i, "trust_paths json words");

  auto [mend, r] = program.command<Common>("checkpoint repair", repair);
  mend.add("run", r->run).required();
  mend.common(*r, "json");
}

}  // namespace longhand::cli
