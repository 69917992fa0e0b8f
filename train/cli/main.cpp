// The program: its command line, and the one place where errors become words and exit codes.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "longhand/core/error.h"
#include "longhand/core/parallel.h"
#include "longhand/train/cli/commands.h"

namespace longhand::cli {
namespace {

constexpr const char* exit_codes =
    "Exit codes: 0 done; 1 another error; 2 command line or configuration; 3 data or checkpoint\n"
    "missing or invalid; 4 training diverged; 75 stopped by a signal and saved (resumable).\n"
    "Environment: LONGHAND_THREADS, LONGHAND_SEED, NO_COLOR.";

/// One line, whatever the message.
int fail(const std::string& message, int code) {
  std::string line;
  for (const char c : message)
    line += c == '\n' ? (line.ends_with(':') ? " " : "; ") : std::string(1, c);
  fmt::print(stderr, "longhand: {}\n", line);
  return code;
}

/// Options that several subcommands share. The words behind the first positional argument count as
/// assignments too, so that `--set a.b=1 c.d=2` is understood.
void add_set(CLI::App& command, Common& common) {
  command
      .add_option("--set", common.set,
                  "Set an option over the file, such as attention.type=performer; may be repeated")
      ->type_name("SECTION.KEY=VALUE")
      ->expected(1)
      ->take_all()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_more_assignments(CLI::App& command, Common& common) {
  command.add_option("assignments", common.set, "More options to set")
      ->type_name("SECTION.KEY=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check([](const std::string& word) {
        return word.find('=') == std::string::npos ? "what is \"" + word + "\"?" : std::string();
      })
      ->group("");
}

CLI::Option* add_seed(CLI::App& command, Common& common) {
  return command.add_option("--seed", common.seed, "Seed of everything random (0 … 2^63-1)")
      ->type_name("N");
}

void add_quiet(CLI::App& command, Common& common) {
  command.add_flag("-q,--quiet", common.quiet, "Say nothing but errors and results");
}

std::string wrapped(const std::string& text, size_t width) {
  std::string out, line;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      out += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + line;
}

/// Help texts of a command and those below it in 100 columns.
void wrap_help(CLI::App& app) {
  constexpr size_t column = 30;
  app.get_formatter()->column_width(column);
  for (CLI::Option* option : app.get_options([](CLI::Option*) { return true; }))
    option->description(wrapped(option->get_description(), 100 - column));
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) wrap_help(*command);
}

void add_json(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "Print the result as JSON, and nothing else, on stdout");
}

class Program {
 public:
  Program() {
    app_.name("longhand");
    app_.require_subcommand(0, 1);
    app_.footer(exit_codes);
    app_.add_flag("--version", version_, "Print the version and what computes");
    app_.add_flag("--json", version_json_, "The version as JSON");
    add_threads(app_);
    add_train();
    add_evaluate();
    add_generate();
    add_report();
    add_variants();
    add_check();
    add_bench();
    add_data();
    add_config();
    add_help();
    add_checkpoint();
    wrap_help(app_);
  }

  int run(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      return print_help();
    } catch (const CLI::ParseError& error) {
      std::string path;
      for (const CLI::App* command : chosen())
        path += (path.empty() ? "" : " ") + command->get_name();
      return fail(std::string(error.what()) + " (see " + path + " --help)", usage_error);
    }
    if (threads_) set_threads(*threads_);
    if (version_) return print_version(version_json_);
    if (!selected_) return fail("which command? (see longhand --help)", usage_error);
    return selected_();
  }

 private:
  /// The program, the subcommand, its subcommand.
  std::vector<CLI::App*> chosen() {
    std::vector<CLI::App*> path = {&app_};
    while (!path.back()->get_subcommands().empty())
      path.push_back(path.back()->get_subcommands().front());
    return path;
  }

  int print_help() {
    std::string text = app_.help();
    while (text.ends_with('\n')) text.pop_back();
    fmt::print("{}\n", text);
    return success;
  }

  static CLI::Validator positive(const std::string& what) {
    return CLI::Validator(
        [what](const std::string& text) {
          int64_t value = 0;
          const bool ok = CLI::detail::lexical_cast(text, value) && value >= 1 && value <= 1 << 30;
          return ok ? std::string() : what + " must be a whole number of at least 1, not " + text;
        },
        "");
  }

  void add_threads(CLI::App& command) {
    command
        .add_option("--threads", threads_, "Threads to compute with; results do not depend on it")
        ->type_name("N")
        ->check(positive("threads"))
        ->envname("LONGHAND_THREADS");
  }

  static CLI::Validator not_negative(const std::string& what) {
    return CLI::Validator(
        [what](const std::string& text) {
          double value = -1;
          const bool ok = CLI::detail::lexical_cast(text, value) && value >= 0 && value < 1e18;
          return ok ? std::string() : what + " must be a number of at least 0, not " + text;
        },
        "");
  }

  /// A subcommand; `f` is what it does.
  template <class F>
  CLI::App& command(CLI::App& parent, const std::string& name, const std::string& text, F f) {
    CLI::App& app = *parent.add_subcommand(name, text);
    app.callback([this, f] { selected_ = f; });
    return app;
  }

  CLI::App& group(const std::string& name, const std::string& text) {
    CLI::App& app = *app_.add_subcommand(name, text);
    app.require_subcommand(1);
    return app;
  }

  void add_train() {
    auto& a = train_;
    CLI::App& c =
        command(app_, "train", "Train a model that a configuration describes, or go on with a run",
                [this] { return train(train_); });
    auto* config =
        c.add_option("config", a.config, "Configuration of a new run")->type_name("CONFIG.toml");
    auto* resume =
        c.add_option("--resume", a.resume,
                     "Go on with the run in DIR from its last checkpoint; --set may then "
                     "change train.steps, train.target_accuracy, train.patience, "
                     "train.*_every, train.eval_batches, train.recompute and data.path")
            ->type_name("DIR");
    resume->excludes(config);
    c.add_option("--out", a.out,
                 "Directory of the run [runs/CONFIG-DATE-TIME]; it must not hold a run yet")
        ->type_name("DIR")
        ->excludes(resume);
    add_set(c, a);
    add_seed(c, a);
    add_threads(c);
    add_quiet(c, a);
    add_json(c, a.json);
    add_more_assignments(c, a);
    c.footer(
        "A run directory holds config.toml (every option with its value), metrics.jsonl (one "
        "object\n"
        "a line), checkpoints/last.h5 and best.h5, and summary.json.\n"
        "SIGINT and SIGTERM finish the step, save and exit with 75; a second one exits at once.\n"
        "SIGUSR1 saves and goes on.\n"
        "Example: longhand train examples/configs/mqar.toml --set attention.type=linear");
  }

  void add_evaluate() {
    auto& a = evaluate_;
    CLI::App& c = command(app_, "evaluate", "Loss and accuracy of a trained model",
                          [this] { return evaluate(evaluate_); });
    c.add_option("run", a.run, "Directory of a run, or a checkpoint file")
        ->type_name("DIR")
        ->required();
    c.add_option("--split", a.split, "train, validation or test [test]")->type_name("SPLIT");
    c.add_option("--checkpoint", a.checkpoint, "best, last or another file of the run [best]")
        ->type_name("NAME");
    c.add_option("--limit", a.limit, "Evaluate the first N examples [all]")
        ->type_name("N")
        ->check(positive("--limit"));
    add_set(c, a);
    add_threads(c);
    add_quiet(c, a);
    add_json(c, a.json);
    add_more_assignments(c, a);
    c.footer(
        "Under another variant (--set attention.type=NAME) the weights that both have are used, "
        "and\n"
        "parameters that only the new one owns are initialised afresh and listed. On other data:\n"
        "--set data.task=tokens --set data.path=FILE.h5.");
  }

  void add_generate() {
    auto& a = generate_;
    CLI::App& c = command(app_, "generate", "Continue a text with a language model on bytes",
                          [this] { return generate(generate_); });
    c.add_option("run", a.run, "Directory of a run, or a checkpoint file")
        ->type_name("DIR")
        ->required();
    c.add_option("--prompt", a.prompt, "Text to continue")->type_name("TEXT");
    c.add_option("--tokens", a.tokens, "Bytes to generate [200]")
        ->type_name("N")
        ->check(positive("--tokens"));
    c.add_option("--temperature", a.temperature,
                 "Divides the logits; below 1 is bolder, 0 takes the likeliest byte [1]")
        ->type_name("T")
        ->check(not_negative("--temperature"));
    c.add_option("--top-k", a.top_k, "Choose among the K likeliest bytes; 0: among all [0]")
        ->type_name("K")
        ->check(not_negative("--top-k"));
    c.add_option("--checkpoint", a.checkpoint, "best, last or another file of the run [best]")
        ->type_name("NAME");
    add_seed(c, a)->envname("LONGHAND_SEED");
    add_threads(c);
    add_json(c, a.json);
    c.footer("Prints the new bytes alone. The same seed gives the same text.");
  }

  void add_report() {
    CLI::App& c = command(app_, "report", "Compare runs in one HTML file that needs nothing else",
                          [this] { return report(report_); });
    c.add_option("runs", report_.runs, "Directories of runs")->type_name("DIR")->required();
    c.add_option("-o,--out", report_.out, "The file to write [report.html]")
        ->type_name("FILE.html");
  }

  void add_variants() {
    auto& a = variants_;
    CLI::App& c = command(app_, "variants", "Table of the attention variants and what they can do",
                          [this] { return variants(variants_); });
    c.add_option("--length", a.length, "Tokens that costs are stated for [1024]")
        ->type_name("N")
        ->check(positive("--length"));
    c.add_option("--heads", a.heads, "Heads [2]")->type_name("H")->check(positive("--heads"));
    c.add_option("--head-dim", a.head_dim, "Width of a head [32]")
        ->type_name("D")
        ->check(positive("--head-dim"));
    add_json(c, a.json);
  }

  void add_check() {
    CLI::App& check = group("check", "Prove what the library promises");
    auto& a = check_;
    CLI::App& c = command(check, "attention",
                          "Run the conformance suite over attention variants; 1 if a check fails",
                          [this] { return check_attention(check_); });
    c.add_option("--variant", a.variants, "Only this variant; may be repeated")
        ->type_name("NAME")
        ->expected(1)
        ->take_all();
    c.add_option("--check", a.checks, "Only this check; may be repeated")
        ->type_name("NAME")
        ->expected(1)
        ->take_all();
    c.add_flag("--list", a.list, "List the checks and run none");
    c.add_flag("-v,--verbose", a.verbose, "Print what was measured, too");
    add_set(c, a);
    add_quiet(c, a);
    add_threads(c);
    add_json(c, a.json);
    c.footer(
        "With --set attention.KEY=VALUE the invariants run for these options of one --variant;\n"
        "otherwise for those that cover all its options, followed by its limits and statistics.\n"
        "Suites over variants of your own: longhand/attention/conformance/conformance.h.");
  }

  void add_bench() {
    CLI::App& group_of_two =
        group("bench", "Measure speed and memory, beside what this machine could do");
    auto& a = bench_;
    const auto add = [&](const std::string& what, const std::string& text) {
      CLI::App& c = command(group_of_two, what, text, [this, what] {
        bench_.what = what;
        return bench(bench_);
      });
      c.add_option("--model", a.model,
                   "L: encoder, 2 layers, d_model 64, 2 heads, d_mlp 128, 10 classes, N from 1024 "
                   "to 16384; M: causal language model, 4 layers, d_model 256, 8 heads, d_mlp "
                   "1024, 256 tokens, N = 2048 and 8192 [L]")
          ->type_name("L|M");
      c.add_option("--attention", a.attention, "Variants [all that can]")
          ->type_name("NAME,...")
          ->delimiter(',');
      c.add_option("--length", a.length, "Tokens of a sequence [those of the model]")
          ->type_name("N,...")
          ->delimiter(',')
          ->check(positive("--length"));
      c.add_option("--tokens", a.tokens, "Tokens a step, in sequences of N, at least one [16384]")
          ->type_name("N")
          ->check(positive("--tokens"));
      c.add_option("--dropout", a.dropout,
                   "Of the model, and of attention where the variant drops probabilities [0]")
          ->type_name("P")
          ->check(not_negative("--dropout"));
      for (const auto& [name, value, description] :
           {std::tuple{"--d-model", &a.d_model, "Width of the model"},
            {"--heads", &a.heads, "Heads"},
            {"--layers", &a.layers, "Layers"}})
        c.add_option(name, *value, description)->type_name("N")->check(positive(name));
      c.add_option("--d-mlp", a.d_mlp, "Width of the feed-forward part; 0: none")
          ->type_name("N")
          ->check(not_negative("--d-mlp"));
      c.add_flag("--causal", a.causal, "Tokens attend to none that are later");
      if (what == "step")
        c.add_flag("--recompute", a.recompute,
                   "Blocks keep their inputs alone, and compute the rest again: less memory, more "
                   "time");
      c.add_option("--seconds", a.seconds, "Time each cell for S seconds, at least three times [1]")
          ->type_name("S")
          ->check(not_negative("--seconds"));
      c.add_option("--repetitions", a.repetitions, "Time each cell so many times")
          ->type_name("N")
          ->check(positive("--repetitions"));
      add_set(c, a);
      add_seed(c, a);
      add_threads(c);
      add_quiet(c, a);
      add_json(c, a.json);
      c.footer(
          "Medians, after two repetitions that do not count; memory is the most that was "
          "resident.\n"
          "The limit is flops / peak + exponentials / rate + bytes / bandwidth, all measured in "
          "the\n"
          "process of the cell, in turns with it: sgemm, our exp in the first cache, "
          "y <- a x + y.\n"
          "A cell is a process of its own. Flops count what is needed: 6 a weight of a linear "
          "layer\n"
          "and token; attention\n"
          "a head, forward and backward: softmax 14 N^2 D (half if causal), linformer 24 N k D,\n"
          "performer 20 N m D, nystrom 24 N m D + 24 m^3 an iteration, linear 12 N D^2. Bytes: 4\n"
          "(60 d_model + 12 d_mlp) a token and layer, 28 a parameter. See train/README.md.\n"
          "Options of one variant only, such as --set attention.k=128, go to those that know "
          "them.");
    };
    add("step", "Training steps: forward, backward and optimizer, on random tokens");
    add("attention", "Attention of one layer alone, forward and backward, on random numbers");
  }

  void add_data() {
    CLI::App& data = group("data", "Look at the data of a task, store it, check it");
    auto& a = data_;
    const auto add_task = [&](CLI::App& c) {
      c.add_option("task", a.task, "A task (see longhand data tasks)")
          ->type_name("TASK")
          ->required();
      c.add_option("--set", a.set, "Set an option of the task; may be repeated")
          ->type_name("data.KEY=VALUE")
          ->expected(1)
          ->take_all()
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      add_seed(c, a);
      add_threads(c);
      add_more_assignments(c, a);
    };
    CLI::App& make =
        command(data, "make", "Write a task's data to a file that task \"tokens\" reads",
                [this] { return make_data(data_); });
    add_task(make);
    make.add_option("-o,--out", a.out, "The file to write")->type_name("FILE.h5")->required();
    make.add_option("--count", a.count, "At most N examples of each split [all]")
        ->type_name("N")
        ->check(positive("--count"));
    add_quiet(make, a);
    add_json(make, a.json);

    CLI::App& show = command(data, "show", "Print examples of a task", [this] {
      if (data_.count == 0) data_.count = 3;
      return show_data(data_);
    });
    add_task(show);
    show.add_option("--split", a.split, "train, validation or test [train]")->type_name("SPLIT");
    show.add_option("--count", a.count, "Examples to print [3]")
        ->type_name("N")
        ->check(positive("--count"));
    add_json(show, a.json);

    CLI::App& hash = command(data, "hash", "Print a hash of a task's data, the same on any machine",
                             [this] { return hash_data(data_); });
    add_task(hash);
    hash.add_option("--count", a.count, "Hash the first N examples of each split [all]")
        ->type_name("N")
        ->check(positive("--count"));
    add_quiet(hash, a);
    add_json(hash, a.json);

    CLI::App& tasks =
        command(data, "tasks", "List the tasks", [this] { return list_tasks(json_); });
    add_json(tasks, json_);

    CLI::App& check = *data.add_subcommand("check", "Check a data file against its definition");
    check.require_subcommand(1);
    CLI::App& listops = command(check, "listops",
                                "Recompute every target of a ListOps TSV file; 3 if any disagrees",
                                [this] { return check_listops(file_, json_); });
    listops.add_option("file", file_, "Columns Source and Target, as Long Range Arena writes them")
        ->type_name("FILE.tsv")
        ->required();
    add_json(listops, json_);
  }

  void add_config() {
    CLI::App& config = group("config", "Look at configurations");
    CLI::App& dump = command(config, "dump", "Print every option of a configuration with its value",
                             [this] { return dump_config(config_); });
    dump.add_option("config", config_.config, "A configuration")
        ->type_name("CONFIG.toml")
        ->required();
    dump.add_flag("--comments", config_.comments, "What each option means, as a comment");
    add_set(dump, config_);
    add_seed(dump, config_);
    add_threads(dump);
    add_quiet(dump, config_);
    add_more_assignments(dump, config_);
  }

  void add_help() {
    CLI::App& c = command(app_, "help", "Options of the configuration: sections, tasks, variants",
                          [this] { return help(help_); });
    c.add_option("topic", help_.topic,
                 "model, attention, data, train, optimizer, attention.NAME or data.NAME")
        ->type_name("TOPIC");
    c.add_flag("--markdown", help_.markdown, "The table alone, as the pages have it");
  }

  void add_checkpoint() {
    CLI::App& checkpoint = group("checkpoint", "Look at checkpoints");
    CLI::App& inspect = command(checkpoint, "inspect", "Verify a checkpoint and list what it holds",
                                [this] { return inspect_checkpoint(file_, json_); });
    inspect.add_option("file", file_, "A checkpoint")->type_name("FILE.h5")->required();
    add_json(inspect, json_);
  }

  CLI::App app_{"Longhand trains long-sequence Transformers with efficient attention on CPUs."};
  std::function<int()> selected_;
  std::optional<int> threads_;
  bool version_ = false, version_json_ = false;
  bool json_ = false;
  std::string file_;
  TrainArguments train_;
  EvaluateArguments evaluate_;
  GenerateArguments generate_;
  ReportArguments report_;
  VariantsArguments variants_;
  CheckArguments check_;
  BenchArguments bench_;
  DataArguments data_;
  ConfigArguments config_;
  HelpArguments help_;
};

int run(int argc, char** argv) {
  try {
    const int code = Program().run(argc, argv);
    // What was printed may still wait for a full disk to refuse it.
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      return fail("cannot write to stdout", failure);
    return code;
  } catch (const ConfigError& error) {
    return fail(error.what(), usage_error);
  } catch (const DataError& error) {
    return fail(error.what(), data_error);
  } catch (const DivergedError& error) {
    return fail(error.what(), diverged);
  } catch (const std::bad_alloc&) {
    return fail("out of memory", failure);
  } catch (const std::exception& error) {
    return fail(error.what(), failure);
  }
}

}  // namespace
}  // namespace longhand::cli

int main(int argc, char** argv) { return longhand::cli::run(argc, argv); }
