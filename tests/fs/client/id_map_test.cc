#include "fs/client/id_map.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace rdfs::fs::client {
namespace {

// Against std::map, with ids that collide: clusters, wrap-around, erasing in the middle of a run.
TEST(IdMap, DoesAsAMapDoes) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    IdMap<int> map(16);
    std::map<std::uint64_t, int> model;
    for (int step = 0; step < 3000; ++step) {
      const std::uint64_t id = (random() % 64) * (random() % 2 == 0 ? 1 : 1024);
      if (random() % 2 == 0) {
        if (model.emplace(id, step).second) map.Insert(id, step);
      } else {
        const auto found = model.find(id);
        const std::optional<int> taken = map.Take(id);
        ASSERT_EQ(taken.has_value(), found != model.end());
        if (taken) {
          EXPECT_EQ(*taken, found->second);
          model.erase(found);
        }
      }
      ASSERT_EQ(map.size(), model.size());
    }
    for (const auto& [key, value] : model) {
      ASSERT_NE(map.Find(key), nullptr) << seed;
      EXPECT_EQ(*map.Find(key), value);
    }
    std::size_t visited = 0;
    map.ForEach([&](std::uint64_t, int) { ++visited; });
    EXPECT_EQ(visited, model.size());
    map.Clear();
    EXPECT_EQ(map.size(), 0U);
    EXPECT_EQ(map.Find(0), nullptr);
  }
}

}  // namespace
}  // namespace rdfs::fs::client
