// longhand generate: a language model on bytes continues a text.
#include "longhand/train/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "longhand/core/error.h"
#include "longhand/core/storage.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/experiment.h"

namespace longhand::cli {

int generate(const GenerateArguments& arguments) {
  const LoadedRun run = load_run(arguments.run, arguments.checkpoint);
  // The configuration says all of the model; its data is not needed.
  attention::Transformer model(nn::root(), train::read_model(run.config, nullptr));
  load_weights(model, run.checkpoint);

  const train::GenerateOptions options{.tokens = arguments.tokens,
                                       .temperature = arguments.temperature,
                                       .top_k = arguments.top_k,
                                       .seed = arguments.seed.value_or(0)};
  const bool stream = !arguments.json;
  const std::string text = train::generate(model, arguments.prompt, options, [stream](char byte) {
    if (!stream) return;
    std::fputc(byte, stdout);
    std::fflush(stdout);
  });
  if (arguments.json) {
    print_json({{"checkpoint", run.file},
                {"prompt", arguments.prompt},
                {"text", text},
                {"bytes", std::vector<int>(
                              reinterpret_cast<const unsigned char*>(text.data()),
                              reinterpret_cast<const unsigned char*>(text.data()) + text.size())},
                {"seed", options.seed},
                {"peak_memory_bytes", peak_resident_memory()}});
  } else if (isatty(STDOUT_FILENO)) {
    std::fputc('\n', stdout);
  }
  return success;
}

}  // namespace longhand::cli
