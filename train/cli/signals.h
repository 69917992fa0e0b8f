// What SIGINT, SIGTERM and SIGUSR1 ask for, as flags that a run looks at between its steps.
#pragma once

namespace longhand::cli {

/// From here on SIGINT and SIGTERM ask to stop, and a second one of them ends the process at once
/// with 128 + its number; SIGUSR1 asks to save.
void catch_signals();

/// SIGINT or SIGTERM has come.
bool stop_requested();
/// SIGUSR1 has come since the last call that said so.
bool take_save_request();

}  // namespace longhand::cli
