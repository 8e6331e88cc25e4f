#include "app/inference/read_text.h"

#include "app/corpora/sources.h"
#include "app/prepare/records.h"
#include "lmx/error.h"

namespace lmx::train {

TokenArray read_text(RunText& text, const std::vector<std::string>& patterns, const std::string& field) {
  constexpr size_t kChunkBytes = 1 << 20;
  const std::vector<data::SourceFile> files = data::find_sources(patterns, data::Split::test, field);
  data::ChunkReader reader(files, kChunkBytes, "reading the text:");
  std::vector<int32_t> ids;
  for (data::Chunk chunk; reader.next(chunk);) {
    const data::SourceFile& file = files[chunk.file];
    data::for_each_record(file, chunk, [&](const data::Record& record) {
      const std::string place = str("[eval] ", file.path, ":", chunk.file_line + record.line);
      static_cast<void>(text.append(record.text, file.format != data::Format::lines, ids, place));
    });
  }
  if (ids.size() < 2)
    throw UserError(str("[eval] the text holds ", ids.size(),
                        " tokens; at least 2 are needed, of which the second is "
                        "predicted from the first"));
  return TokenArray::of(std::move(ids));
}

}  // namespace lmx::train
