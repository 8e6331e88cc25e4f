#include "app/report/html_page.h"

#include <sstream>

#include "app/report/chart.h"

namespace lmx_cli {
namespace {

constexpr const char* kStyle =
    "body{font:15px/1.5 sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#1a1a1f;background:#fff}"
    "table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto;margin:1em 0}"
    "td,th{border-bottom:1px solid #ccc;padding:4px "
    "8px;text-align:left;vertical-align:top}svg{max-width:100%;height:auto}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#16161a}svg{background:#fff}}";

// The text of a line, in which a pair of `mark` becomes an element. A mark beside a blank, such as a product's, stays.
std::string with_element(std::string text, const std::string& mark, const std::string& name) {
  for (size_t from = 0; (from = text.find(mark, from)) != std::string::npos;) {
    const size_t begin = from + mark.size(), end = text.find(mark, begin);
    if (end == std::string::npos) break;
    if (end == begin || text[begin] == ' ' || text[end - 1] == ' ') {
      from = begin;
      continue;
    }
    const std::string inner = text.substr(begin, end - begin);
    const std::string element = "<" + name + ">" + inner + "</" + name + ">";
    text.replace(from, end + mark.size() - from, element);
    from += element.size();
  }
  return text;
}
std::string inline_html(const std::string& text) {
  return with_element(with_element(with_element(escaped(text), "**", "b"), "*", "em"), "`", "code");
}

// The cells of a line of a table; `\\|` is part of a cell.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::string cell;
  for (size_t i = 1; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size() && line[i + 1] == '|') {
      cell += line[++i];
    } else if (line[i] == '|') {
      cells.push_back(cell);
      cell.clear();
    } else {
      cell += line[i];
    }
  }
  return cells;
}
std::string row_html(const std::string& line, const std::string& element) {
  std::string html = "<tr>";
  for (const std::string& cell : cells_of(line)) html += "<" + element + ">" + inline_html(cell) + "</" + element + ">";
  return html + "</tr>\n";
}

// The element that holds a line of Markdown, without its end; "" for a blank line.
std::string block_of(const std::string& line) {
  if (line.starts_with("|")) return "table";
  if (line.starts_with("- ")) return "ul";
  return line.empty() ? "" : line.starts_with("# ") ? "h1" : "p";
}

std::string body_html(const std::string& markdown) {
  std::istringstream lines(markdown);
  std::string html, open;
  size_t row = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string block = block_of(line);
    if (block != open || block == "h1") {
      if (!open.empty()) html += "</" + open + ">\n";
      if (!block.empty()) html += "<" + block + ">";
      open = block;
      row = 0;
    }
    if (block == "table") {
      if (row != 1) html += row_html(line, row == 0 ? "th" : "td");
      ++row;
    } else if (block == "ul") {
      html += "<li>" + inline_html(line.substr(2)) + "</li>\n";
    } else if (!block.empty()) {
      html += inline_html(block == "h1" ? line.substr(2) : line) + "\n";
    }
  }
  return html + (open.empty() ? "" : "</" + open + ">\n");
}

}  // namespace

std::string html_page(const std::string& title, const std::string& markdown, const std::vector<std::string>& images) {
  std::string html =
      "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
      "<meta name='viewport' content='width=device-width'><title>" +
      escaped(title) + "</title>\n<style>" + kStyle + "</style></head>\n<body>\n" + body_html(markdown);
  for (const std::string& image : images) html += "<p>" + image + "</p>\n";
  return html + "</body></html>\n";
}

}  // namespace lmx_cli
