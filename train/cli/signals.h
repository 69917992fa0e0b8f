// What SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask for, as flags that a run looks at between its steps.
#pragma once

namespace longhand::cli {

/// From here on SIGINT, SIGTERM and SIGHUP ask to stop, and a second one of them ends the process
/// at once with 128 + its number; SIGUSR1 asks to save; SIGPIPE is ignored.
void catch_signals();

/// One that asks to stop has come.
bool stop_requested();
/// SIGUSR1 has come since the last call that said so.
bool take_save_request();

}  // namespace longhand::cli
