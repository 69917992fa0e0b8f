# cmake -D LONGHAND=PROGRAM -D SOURCE=FOLDER -D OUT=FOLDER -P pages.cmake
# Writes the pages of the site that are not files of the source: the configurations, the list of
# reports, and the commands as the program prints them.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${OUT}")
file(MAKE_DIRECTORY "${OUT}")

execute_process(COMMAND "${LONGHAND}" help commands --markdown OUTPUT_VARIABLE page
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "^# Commands\n" "# Commands {#commands}\n\n[TOC]\n" page "${page}")
file(WRITE "${OUT}/commands.md" "${page}")

# The configurations that are installed.
set(page "# Configurations {#configurations}\n\nWhat an installation has in `share/longhand`.\n\n[TOC]\n\n")
file(GLOB_RECURSE files RELATIVE "${SOURCE}/examples" "${SOURCE}/examples/configs/*.toml"
     "${SOURCE}/examples/sweeps/*.toml")
list(SORT files)
foreach(file IN LISTS files)
  file(READ "${SOURCE}/examples/${file}" text)
  string(MAKE_C_IDENTIFIER "file_${file}" id)
  string(APPEND page "## ${file} {#${id}}\n\n```text\n${text}```\n\n")
endforeach()
file(WRITE "${OUT}/configurations.md" "${page}")

# The reports of the examples, which examples/reports.sh writes beside the pages.
file(WRITE "${OUT}/reports.md" "# Reports of the examples {#reports}

As `longhand report` writes them, each in one file, from the results that the examples come with.

- <a href=\"reports/recall.html\">Recall against the size of the state</a>
- <a href=\"reports/skills.html\">Which variants learn which skills</a>
- <a href=\"reports/distributed.html\">Several ranks</a>
")
