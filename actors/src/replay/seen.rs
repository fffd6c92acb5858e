//! Compact serialisation of the set of known record ids: the ids of one process form ranges of
//! consecutive numbers.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::RecordId;

/// Ranges of record counters for each process; both bounds are inclusive.
type Ranges = BTreeMap<u32, Vec<(u32, u32)>>;

pub(super) fn serialize<S: Serializer>(
    seen: &HashSet<RecordId>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut sorted: Vec<RecordId> = seen.iter().copied().collect();
    sorted.sort_unstable();
    let mut ranges = Ranges::new();
    for RecordId { process, count } in sorted {
        let known = ranges.entry(process).or_default();
        match known.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(count) => *last = count,
            _ => known.push((count, count)),
        }
    }
    ranges.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<HashSet<RecordId>, D::Error> {
    let ranges = Ranges::deserialize(deserializer)?;
    let ids = ranges.into_iter().flat_map(|(process, ranges)| {
        let counts = ranges.into_iter().flat_map(|(from, to)| from..=to);
        counts.map(move |count| RecordId { process, count })
    });
    Ok(ids.collect())
}
