// longhand checkpoint export and import: exchanges weights with other programs' files.
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/run/run_record.h"
#include "longhand/train/transfer/weights.h"

namespace longhand::cli {
namespace {

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

/// Returns the model's configuration: the user's, completed from its data, or the one in the file.
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
  // Untrusted files could name any file, which commands that use the model would open.
  if (!a.trust_paths)
    train::SavedModel{a.file, {}, config, ""}.check_paths(
        {"data.path", "train.init_from", "train.distill_from"}, &a.set);
  apply(a, config);
  return config;
}

/// Says whose names the file has, and what the weights do not show.
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

}  // namespace

void add_checkpoint_exchange(Command& program) {
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
}

}  // namespace longhand::cli
