// The subcommands of the program, one file each. Each takes what the command line says and returns
// an exit code; errors are thrown, and main() turns them into a line and a code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace longhand::cli {

/// What the program's exit codes say.
enum ExitCode : int {
  success = 0,
  failure = 1,      // anything else
  usage_error = 2,  // the command line or the configuration
  data_error = 3,   // a data file or checkpoint is missing or cannot be used
  diverged = 4,     // loss or gradient was not finite
  stopped = 75,     // by a signal, and saved: train --resume goes on
};

/// What most subcommands take.
struct Common {
  std::vector<std::string> set;  // section.key=value
  std::optional<uint64_t> seed;
  bool quiet = false;
  bool json = false;
};

struct TrainArguments : Common {
  std::string config;  // of a new run
  std::string resume;  // or the directory of one to go on with
  std::string out;
};
int train(const TrainArguments& arguments);

struct EvaluateArguments : Common {
  std::string run;
  std::string split = "test";
  std::string checkpoint = "best";
  int64_t limit = 0;
};
int evaluate(const EvaluateArguments& arguments);

struct GenerateArguments : Common {
  std::string run;
  std::string checkpoint = "best";
  std::string prompt;
  int64_t tokens = 200;
  double temperature = 1;
  int64_t top_k = 0;
};
int generate(const GenerateArguments& arguments);

struct VariantsArguments {
  int64_t length = 1024, heads = 2, head_dim = 32;
  bool json = false;
};
int variants(const VariantsArguments& arguments);

/// `check attention`.
struct CheckArguments : Common {
  std::vector<std::string> variants;  // empty: all
  std::vector<std::string> checks;    // empty: all
  bool list = false, verbose = false;
};
int check_attention(const CheckArguments& arguments);

/// `bench step` and `bench attention`.
struct BenchArguments : Common {
  std::string what;  // "step" or "attention"
  std::string model = "L";
  std::vector<std::string> attention;  // empty: all that can
  std::vector<int64_t> length;         // empty: those of the model
  std::optional<int64_t> d_model, heads, layers, d_mlp;
  std::optional<double> dropout;
  bool causal = false, recompute = false;
  int64_t tokens = 16384;
  int64_t repetitions = 0;
  double seconds = 1;
};
int bench(const BenchArguments& arguments);

struct ReportArguments {
  std::vector<std::string> runs;
  std::string out = "report.html";
};
int report(const ReportArguments& arguments);

/// `config dump`.
struct ConfigArguments : Common {
  std::string config;
  bool comments = false;
};
int dump_config(const ConfigArguments& arguments);

struct HelpArguments {
  std::string topic;  // empty: the list of them
  bool markdown = false;
};
int help(const HelpArguments& arguments);

/// `checkpoint inspect`.
int inspect_checkpoint(const std::string& file, bool json);

struct DataArguments : Common {
  std::string task;
  std::string split = "train";
  std::string out;
  int64_t count = 0;
};
int make_data(const DataArguments& arguments);
int show_data(const DataArguments& arguments);
int hash_data(const DataArguments& arguments);
/// `data tasks`.
int list_tasks(bool json);
/// `data check listops`.
int check_listops(const std::string& file, bool json);

int print_version(bool json);

}  // namespace longhand::cli
