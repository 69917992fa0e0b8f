// longhand generate: continues a text with a byte-level language model.
#include <unistd.h>

#include "longhand/core/storage.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/evaluate/generate.h"
#include "longhand/train/transfer/loaded_run.h"

namespace longhand::cli {
namespace {

struct GenerateArguments : Common {
  std::string prompt;
  train::GenerateOptions options;
};

int generate(GenerateArguments arguments) {
  arguments.options.seed = seed_or_default(arguments);
  const train::SavedModel run = train::load_model(arguments.run, arguments.checkpoint);
  const std::unique_ptr<attention::Transformer> model = model_of(run);
  const bool stream = !arguments.json;
  std::string unwritten = arguments.prompt;  // written once the model is known to be a text model
  const std::string text =
      train::generate(*model, arguments.prompt, arguments.options, [&](char byte) {
        if (!stream) return true;
        write_stdout(std::exchange(unwritten, "") + byte);
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
      .add("seed", arguments.options.seed)
      .add("peak_memory_bytes", peak_resident_memory())
      .end();
}

}  // namespace

void add_generate(Command& program) {
  auto [c, a] = program.command<GenerateArguments>("generate", generate);
  c.common(*a, "run");
  c.add("--prompt", a->prompt);
  c.add("--tokens", a->options.tokens).positive();
  c.add("--temperature", a->options.temperature).not_negative();
  c.add("--top-k", a->options.top_k).not_negative();
  c.common(*a, "checkpoint seed threads json");
}

}  // namespace longhand::cli
