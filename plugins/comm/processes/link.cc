#include "link.h"

namespace lmx::processes {

Messages::~Messages() = default;
Link::~Link() = default;
BeatLink::~BeatLink() = default;
Transport::~Transport() = default;
void Transport::note_hosts(const std::vector<std::string>&) {}

}  // namespace lmx::processes
