// longhand data: writes, prints, hashes and verifies the data of tasks.

#include "longhand/data/dataset.h"
#include "longhand/data/listops.h"
#include "longhand/data/tasks/stored.h"
#include "longhand/data/trailer.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::data {

void fields(train::Is<TaskInfo> auto& t, auto& f) {
  f("task", t.name);
  f("vocabulary", t.vocabulary);
  f("classes", t.classes);
  f("per_token", t.per_token);
  f("causal", t.causal);
  f("bytes", t.bytes);
  f("max_length", t.max_length);
  f("labels", t.labels);
  f("targets", std::string(name_of(t.targets)));
}

}  // namespace longhand::data

namespace longhand::cli {
namespace {

/// The first examples of a dataset.
class First final : public data::Dataset {
 public:
  First(std::unique_ptr<Dataset> all, int64_t count)
      : all_(std::move(all)), size_(std::min(count, all_->size())) {}
  int64_t size() const override { return size_; }
  int64_t length(int64_t index) const override { return all_->length(index); }
  data::Batch collate(std::span<const int64_t> indices) const override {
    return all_->collate(indices);
  }

 private:
  std::unique_ptr<Dataset> all_;
  int64_t size_;
};

struct DataArguments : Common {
  std::string task;  // or a run
  int64_t count = 0;
  bool tokens = false;
};

struct Made {
  data::Task task;
  uint64_t seed;
};

/// Returns the data options of a run, from its checkpoint.
train::Config config_of_run(const DataArguments& arguments) {
  const train::SavedModel saved = train::load_model(arguments.task, "best");
  if (!arguments.trust_paths) saved.check_paths({"data.path"}, &arguments.set);
  train::Config config;
  for (const auto& [option, value] : saved.config.given()) {
    const size_t dot = option.find('.');
    if (option.starts_with("data.") || option == "model.max_length")
      config.assign(option.substr(0, dot), option.substr(dot + 1), value, saved.file);
  }
  if (arguments.seed)
    config.assign("data", "seed", static_cast<int64_t>(*arguments.seed), "--seed");
  return config;
}

/// Makes the given split, or all.
Made make(const DataArguments& arguments, const data::Splits& used = {}) {
  train::Config config;
  const std::vector<std::string> tasks = data::task_names();
  const bool is_task = std::ranges::find(tasks, arguments.task) != tasks.end();
  if (!is_task && fs::exists(arguments.task))
    config = config_of_run(arguments);
  else
    config.assign("data", "task", arguments.task, "TASK");
  apply_to_data(arguments, config);
  config.model().check_known({"max_length"});
  config.attention().check_known({});
  config.train().check_known({"seed"});
  config.optimizer().check_known({});
  EffectiveValues values;
  train::read_task_info(config, &values);
  const auto seed = std::get<int64_t>(values.at("seed").value);
  const Waiting waiting(arguments.quiet, "preparing data");
  Made made{train::read_task(config, used), static_cast<uint64_t>(seed)};
  if (arguments.count > 0)
    for (auto* split : {&made.task.train, &made.task.validation, &made.task.test})
      if (*split) *split = std::make_unique<First>(std::move(*split), arguments.count);
  return made;
}

/// Returns bytes as text, with unprintable ones escaped as \x0a.
std::string text_of_bytes(const std::vector<int32_t>& tokens) {
  std::string out;
  for (const int32_t token : tokens)
    out += token == '\\'                   ? "\\\\"
           : token >= 0x20 && token < 0x7f ? std::string(1, static_cast<char>(token))
                                           : fmt::format("\\x{:02x}", token);
  return out;
}

std::string numbers_of(const std::vector<int32_t>& tokens) {
  return fmt::format("{}", fmt::join(tokens, " "));
}

std::string text_of_tokens(const data::TaskInfo& info, const std::vector<int32_t>& tokens) {
  if (info.bytes) return text_of_bytes(tokens);
  if (info.name == "listops")
    return data::listops::to_text(std::vector<uint8_t>(tokens.begin(), tokens.end()));
  return numbers_of(tokens);
}

/// Returns "2 (sports)" for every target.
std::string names_of(const data::TaskInfo& info, const std::vector<int32_t>& targets) {
  std::string out;
  for (const int32_t target : targets)
    out += fmt::format("{}{} ({})", out.empty() ? "" : " ", target, info.label_of(target));
  return out;
}

int make_file(const DataArguments& arguments) {
  check<ConfigError>(fs::path(arguments.out).extension() == ".h5", "--out ", arguments.out,
                     ": expected a name that ends in .h5, because the file is HDF5");
  const Made made = make(arguments);
  {
    const Waiting waiting(arguments.quiet, "writing " + arguments.out);
    data::write_task(made.task, arguments.out, made.seed);
  }
  Json examples;
  for (const std::string& split : made.task.splits())
    examples[split] = made.task.split(split).size();
  if (!arguments.json && !arguments.quiet)
    print_stdout_if_possible("{}: {} training, {} validation and {} test examples\n", arguments.out,
                             made.task.train->size(), made.task.validation->size(),
                             made.task.test ? made.task.test->size() : 0);
  return Answer(arguments.json)
      .add(made.task.info)
      .add("file", arguments.out)
      .add("examples", examples)
      .end();
}

int show(const DataArguments& arguments) {
  const Made made = make(arguments, data::Splits::only(arguments.split));
  const data::TaskInfo& info = made.task.info;
  const data::Dataset& dataset = made.task.split(arguments.split);
  Answer out(arguments.json);
  out.add(info);
  out.print("{}: {} of up to {} tokens below {}, with {}\n", arguments.split,
            counted(dataset.size(), "example"), info.max_length, info.vocabulary,
            info.describe_targets());
  Json examples;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const data::Batch batch = dataset.collate({{i}});
    const data::ExampleView seen = data::examples_of(batch)[0];
    const std::vector<int32_t> tokens(seen.tokens.begin(), seen.tokens.end()),
        targets(seen.targets.begin(), seen.targets.end());
    if (info.targets != data::TargetKind::classes) {
      const auto values = batch.targets.to(DType::f32).to_vector<float>();
      examples.emplace_back(Json{{"tokens", tokens}, {"targets", values}});
      out.print("\n{}\ntargets: {}\n", numbers_of(tokens), fmt::join(values, " "));
      continue;
    }
    Json& example = examples.emplace_back(Json{{"tokens", tokens}, {"targets", targets}});
    if (info.bytes || info.name == "listops") example["text"] = text_of_tokens(info, tokens);
    if (!info.labels.empty() && !info.per_token) example["label"] = info.label_of(targets[0]);
    const bool numbers = arguments.tokens;
    out.print("\n{}\n{}: {}\n", numbers ? numbers_of(tokens) : text_of_tokens(info, tokens),
              info.per_token ? "targets" : "target",
              info.bytes && info.per_token && !numbers ? text_of_bytes(targets)
              : info.labels.empty()                    ? numbers_of(targets)
                                                       : names_of(info, targets));
  }
  if (!examples.is_null()) out.add("examples", examples);
  return out.end();
}

int hash(const DataArguments& arguments) {
  const bool one = !arguments.split.empty();
  const Made made = make(arguments, one ? data::Splits::only(arguments.split) : data::Splits());
  const Waiting waiting(arguments.quiet, "hashing");
  Answer out(arguments.json);
  Json splits;
  for (const std::string& split : made.task.splits()) {
    const data::Dataset& dataset = made.task.split(split);
    splits[split] = {{"examples", dataset.size()}, {"hash", data::content_hash(dataset)}};
    out.print("{}  {} ({})\n", splits[split]["hash"].get<std::string>(), split,
              counted(dataset.size(), "example"));
  }
  return out.add(made.task.info).add("splits", splits).end();
}

int list_tasks(const Common& arguments) {
  Answer out(arguments.json);
  out.add("tasks", list_of(data::task_names(), [&](const std::string& name) -> Json {
            out.literal(wrapped_lines(name + ": " + data::task_summary(name), 100) + "\n");
            return {{"name", name},
                    {"summary", data::task_summary(name)},
                    {"options", names_of(data::task_options(name))}};
          }));
  return out.text("\nOptions of a task: longhand help data.NAME\n").end();
}

void add_task(Command& c, DataArguments& a) {
  c.add("task", a.task).required();
  c.common(a, "set seed trust_paths threads words");
}

}  // namespace

void add_data(Command& program) {
  auto [make, m] = program.command<DataArguments>("data make", make_file);
  add_task(make, *m);
  make.out(m->out,
           [](const auto& file) {
             return data::has_trailer(data::RegularFile(file), data::data_file);
           })
      .required();
  make.add("--count", m->count).positive();
  make.common(*m, "quiet json");

  auto [show_some, s] = program.command<DataArguments>("data show", show);
  s->split = "train";
  s->count = 3;
  add_task(show_some, *s);
  show_some.add("--split", s->split);
  show_some.add("--count", s->count).positive();
  show_some.flag("--tokens", s->tokens);
  show_some.common(*s, "json");

  auto [hash_all, h] = program.command<DataArguments>("data hash", hash);
  h->split.clear();  // all
  add_task(hash_all, *h);
  hash_all.add("--split", h->split);
  hash_all.add("--count", h->count).positive();
  hash_all.common(*h, "quiet json");

  auto [tasks, t] = program.command<Common>("data tasks", list_tasks);
  tasks.common(*t, "json");
}

}  // namespace longhand::cli
