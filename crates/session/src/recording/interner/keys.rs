//! Maps by the host's keys.

use std::collections::HashMap;

use foldhash::fast::FixedState;

/// A map whose keys are addresses and numbers of this process. No attacker chooses the keys, so no random seed is
/// needed.
pub type KeyMap<K, V> = HashMap<K, V, FixedState>;
