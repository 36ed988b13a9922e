//! Where the objects of samples are now.
//!
//! An object that survives a minor collection moves once. From then on it stays at its place, until a major collection has
//! marked what lives, and sweeps the rest. So unmarked objects are forgotten after the last step of the marking: each place
//! is its sample's object's, and no later one's.

use nthbyte_profile::event::SampleId;

/// `GCFLAG_VISITED`: the object was marked.
const MARKED: u64 = 1 << (32 + 2);
/// With so many, no more are followed.
const MOST: usize = 1 << 18;

/// The addresses of objects outside of the nursery, and their samples.
#[derive(Debug, Default)]
pub struct Followed(Vec<(usize, SampleId)>);

impl Followed {
    /// Follows an object that a minor collection has moved.
    pub fn add(&mut self, address: usize, sample: SampleId) {
        if self.0.len() < MOST && self.0.try_reserve(1).is_ok() {
            self.0.push((address, sample));
        }
    }

    /// Forgets garbage.
    ///
    /// # Safety
    /// All objects that may live are marked, and none was freed since the last call.
    pub unsafe fn marked(&mut self) {
        self.0.retain(|&(address, _)| {
            // SAFETY: by the caller, it is an object's header.
            unsafe { *(address as *const u64) & MARKED != 0 }
        });
    }

    /// Forgets all.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// All of them.
    pub fn take(&mut self) -> Vec<(usize, SampleId)> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_marked_is_forgotten() {
        let headers = [MARKED | 0x40, 0x40, MARKED | 1 << 32, !MARKED];
        let mut followed = Followed::default();
        for (number, header) in headers.iter().enumerate() {
            followed.add(std::ptr::from_ref(header) as usize, SampleId(number as u32));
        }
        // SAFETY: all have headers.
        unsafe { followed.marked() };
        let left: Vec<_> = followed.take().into_iter().map(|(_, of)| of.0).collect();
        assert_eq!(left, [0, 2]);
    }
}
