// The feature maps of linear attention: fixed or learned kernels that do not approximate the
// softmax kernel. Each has its own file, with its formula and paper.
#pragma once

#include "longhand/attention/features/feature_map.h"

namespace longhand::attention {

struct MapKindOptions {
  int64_t nu = 1, features = 32;
};

/// The properties of a map that are known before it is constructed.
struct MapKind {
  const char* name;
  std::unique_ptr<FeatureMap> (*make)(const MapScope& scope, const MapKindOptions& options);
  bool may_vanish = false;    // normalisers may be 0
  bool may_underflow = true;  // FeatureMap::may_underflow
  bool by_position = false;
  const char* time = "N D^2";
  const char* memory = "D^2";
};

/// MapKind::make for a class.
template <class Map>
std::unique_ptr<FeatureMap> make_map(const MapScope& scope, const MapKindOptions& options) {
  return std::make_unique<Map>(scope, options);
}

extern const MapKind elu1_map, relu_map, squared_relu_map, exp_map, taylor2_map, cosformer_map,
    hedgehog_map, dpfp_map, rebased_map, t2r_map;

}  // namespace longhand::attention
