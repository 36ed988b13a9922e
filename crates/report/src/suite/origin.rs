//! The lines of the program's own code that allocated something.

use nthbyte_profile::Profile;
use nthbyte_profile::event::NodeId;
use serde::{Deserialize, Serialize};

use crate::leaks::Frames;

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The function's qualified name.
    pub name: String,
    /// Its file.
    pub file: String,
    /// The line.
    pub line: u32,
}

/// The innermost line of the program's own code; without one, the innermost line.
pub fn origin(profile: &Profile, frames: &Frames, stack: NodeId) -> Option<Origin> {
    if stack == NodeId::ROOT {
        return None;
    }
    let own = frames.own[stack.index()].frame;
    let frame = profile.frames.get(own as usize)?;
    let function = profile.functions.get(frame.function as usize)?;
    Some(Origin {
        name: function.name.clone(),
        file: function.file.clone(),
        line: frame.line,
    })
}
