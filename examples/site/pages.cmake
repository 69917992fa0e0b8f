# cmake -D LONGHAND=PROGRAM -D SOURCE=FOLDER -D OUT=FOLDER -P pages.cmake
# Writes the pages of the site that are not files of the source: the course, the configurations, the list of
# reports, and the commands as the program prints them.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${OUT}")
file(MAKE_DIRECTORY "${OUT}")

execute_process(COMMAND "${LONGHAND}" help commands --markdown OUTPUT_VARIABLE page
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "^# Commands\n" "# Commands {#commands}\n\n[TOC]\n" page "${page}")
file(WRITE "${OUT}/commands.md" "${page}")

# The course: every lesson with its program.
file(GLOB lessons "${SOURCE}/examples/*.cpp")
set(page "# The course {#course}\n\nSix programs of a page each. They are built and run as tests.\n\n[TOC]\n\n")
foreach(lesson IN LISTS lessons)
  get_filename_component(name "${lesson}" NAME)
  get_filename_component(stem "${lesson}" NAME_WE)
  file(READ "${lesson}" text)
  string(REGEX MATCH "^// [^\n]*(\n// [^\n]*)*" about "${text}")  # the first paragraph of its comment
  string(REGEX REPLACE "\n?// " " " about "${about}")
  string(REGEX REPLACE "^ (Lesson [0-9]: )?" "" about "${about}")
  string(SUBSTRING "${about}" 0 1 first)
  string(TOUPPER "${first}" first)
  string(SUBSTRING "${about}" 1 -1 about)
  string(REGEX REPLACE "^0?([0-9]+)_" "Lesson \\1: " title "${stem}")
  string(REPLACE "_" " " title "${title}")
  string(APPEND page "## ${title} {#lesson_${stem}}\n\n${first}${about}\n\n\\include ${name}\n\n")
endforeach()
file(WRITE "${OUT}/course.md" "${page}")

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
