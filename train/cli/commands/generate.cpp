// longhand generate: continues a text with a byte-level language model.
#include "longhand/train/evaluate/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "longhand/core/error.h"
#include "longhand/core/storage.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output/answer.h"
#include "longhand/train/cli/output/output.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/run/run_record.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::cli {
namespace {

struct Arguments : Common {
  std::string run;
  std::string checkpoint = "best";
  std::string prompt;
  int64_t tokens = 200;
  double temperature = 1;
  int64_t top_k = 0;
};

int generate(const Arguments& arguments) {
  const train::SavedModel run = train::load_model(arguments.run, arguments.checkpoint);
  // The configuration describes the model completely; its data is not needed.
  attention::Transformer model(nn::root(), train::read_model(run.config, nullptr));
  load_weights(model, run.checkpoint);

  const train::GenerateOptions options{.tokens = arguments.tokens,
                                       .temperature = arguments.temperature,
                                       .top_k = arguments.top_k,
                                       .seed = arguments.seed.value_or(0)};
  const bool stream = !arguments.json;
  const std::string text = train::generate(model, arguments.prompt, options, [stream](char byte) {
    if (!stream) return true;
    write_stdout({&byte, 1});
    flush_stdout();
    return !stdout_is_closed();
  });
  if (stream && isatty(STDOUT_FILENO)) write_stdout("\n");
  return Answer(arguments.json)
      .add("checkpoint", run.file)
      .add("prompt", arguments.prompt)
      .add("text", text)
      .add("bytes",
           std::vector<int>(reinterpret_cast<const unsigned char*>(text.data()),
                            reinterpret_cast<const unsigned char*>(text.data()) + text.size()))
      .add("seed", options.seed)
      .add("peak_memory_bytes", peak_resident_memory())
      .end();
}

}  // namespace

void add_generate(Command& program) {
  const auto a = std::make_shared<Arguments>();
  Command c = program.command("generate", "Continue a text with a byte-level language model",
                              [a] { return generate(*a); });
  c.add("run", a->run, "DIR", "Run directory or checkpoint file").required();
  c.add("--prompt", a->prompt, "TEXT", "Text to continue");
  c.add("--tokens", a->tokens, "N", "Bytes to generate [200]").positive();
  c.add("--temperature", a->temperature, "T",
        "Divides the logits; below 1 sharpens the distribution, 0 takes the likeliest byte [1]")
      .not_negative();
  c.add("--top-k", a->top_k, "K", "Sample from the K likeliest bytes; 0: from all [0]")
      .not_negative();
  c.add("--checkpoint", a->checkpoint, "NAME",
        "best, last or the name of another checkpoint of the run [best]");
  c.seed(*a).environment("LONGHAND_SEED");
  c.common(*a, "threads json");
  c.footer("Prints only the new bytes. The same seed gives the same text.");
}

}  // namespace longhand::cli
