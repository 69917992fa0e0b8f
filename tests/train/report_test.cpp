#include "longhand/train/report/page.h"

#include <fstream>
#include <limits>

#include "longhand/train/run/run_record.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::train;
using namespace longhand::test;

namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

Record record(int64_t step, const std::string& split, double loss, double accuracy) {
  Record r;
  r.step = step;
  r.split = split;
  r.loss = loss;
  r.accuracy = accuracy;
  return r;
}

// Writes a run of three steps.
void make_run(const std::filesystem::path& path, const std::string& attention, double loss) {
  RunRecord run = RunRecord::create(path, "[attention]\ntype = \"" + attention + "\" # <&>\n");
  run.keep();
  for (int64_t step = 1; step <= 3; ++step) {
    const double falling = loss / static_cast<double>(step);
    run.append(record(step, "train", falling, 0));
    run.append(record(step, "validation", falling, 0.25 * static_cast<double>(step)));
  }
  Summary summary;
  summary.status = "finished";
  summary.task = "mqar";
  summary.attention = attention;
  summary.step = summary.steps = 3;
  summary.parameters = 1234;
  summary.validation = record(3, "validation", loss / 3, 0.75);
  run.write_summary(summary);
}

}  // namespace

TEST_CASE("report: one page with a row, curves and a configuration for each run") {
  const TemporaryDirectory dir;
  make_run(dir / "a", "softmax", 6);
  make_run(dir / "b", "linformer", 3);
  const std::string html = html_report({dir / "a", dir / "b"});
  CHECK(html.starts_with("<!doctype html>"));
  CHECK(html.ends_with("</html>\n"));
  for (const char* text : {"softmax", "linformer", "mqar", "finished", "1234", "2.0000", "1.0000",
                           "0.7500", "&lt;&amp;&gt;"})
    CHECK(count(html, text) >= 1);
  CHECK(count(html, "<tr>") == 3);
  CHECK(count(html, "<polyline") == 8);  // 2 runs, 2 splits, loss and accuracy
  // It is self-contained: no scripts, no external resources.
  for (const char* text : {"<script", "http:", "https:", "src=", "<link", "@import", "url("})
    CHECK(count(html, text) == 0);
  // Every opened tag is closed.
  for (const char* tag : {"html", "body", "table", "tr", "svg", "figure", "details", "pre", "div"})
    CHECK(count(html, std::string("<") + tag + ">") + count(html, std::string("<") + tag + " ") ==
          count(html, std::string("</") + tag + ">"));
}

TEST_CASE("report: runs in progress, with numbers that are not finite") {
  const TemporaryDirectory dir;
  make_run(dir / "a", "softmax", std::numeric_limits<double>::quiet_NaN());
  std::filesystem::remove(dir / "a" / "summary.json");
  std::ofstream(dir / "a" / "metrics.jsonl", std::ios::app) << "{\"step\": 4, \"spl";
  const std::string html = html_report({dir / "a"});
  CHECK(count(html, "running") == 1);
  CHECK(count(html, "<polyline") == 2);  // accuracies
  CHECK(count(html, "nan") == 0);
}

TEST_CASE("report: a folder that is not a run is refused, by name") {
  const TemporaryDirectory dir;
  CHECK_THROWS_WITH(html_report({dir / "none"}), Catch::Contains("none holds no run"));
  make_run(dir / "a", "softmax", 1);
  std::ofstream(dir / "a" / "metrics.jsonl", std::ios::app) << "not JSON\n";
  CHECK_THROWS_AS(html_report({dir / "a"}), DataError);
  CHECK_THROWS_WITH(html_report({dir / "a"}), Catch::Contains("metrics.jsonl:7"));
}
