//! Tokens: the heap stores one with each sampled block, and returns it when the block is freed.

use nthbyte_heap::NOT_INTERESTED;
use nthbyte_profile::event::SampleId;

/// Tokens of live sampled blocks, with the numbers of their samples.
#[derive(Default)]
pub struct Tokens {
    entries: Vec<u32>,
    unused: Vec<u32>,
}

/// The numbers of samples by their tokens, at one moment.
pub struct Numbers(Vec<u32>);

impl Numbers {
    /// The number of a token's sample, if it was recorded.
    #[must_use]
    pub fn get(&self, token: u32) -> Option<SampleId> {
        let entry = *self.0.get(token as usize)?;
        (entry != Tokens::NO_SAMPLE).then_some(SampleId(entry))
    }
}

impl Tokens {
    /// The numbers of samples at this moment; none if there is no memory.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        let mut copy = Vec::new();
        if copy.try_reserve_exact(self.entries.len()).is_ok() {
            copy.extend_from_slice(&self.entries);
        }
        Numbers(copy)
    }

    /// The entry of a block whose sample was not recorded, or was recorded by an earlier session.
    const NO_SAMPLE: u32 = u32::MAX;

    /// A new token for a sampled block. `None` if there is no memory.
    pub fn issue(&mut self) -> Option<u32> {
        if let Some(token) = self.unused.pop() {
            return Some(token);
        }
        self.entries.try_reserve(1).ok()?;
        // Reserves space for the return of the token, so that `release` cannot fail.
        self.unused.try_reserve(self.entries.len() + 1).ok()?;
        self.entries.push(Self::NO_SAMPLE);
        u32::try_from(self.entries.len() - 1)
            .ok()
            .filter(|&token| token != NOT_INTERESTED)
    }

    /// Stores the number of the recorded sample of a token's block.
    pub fn set(&mut self, token: u32, sample: SampleId) {
        if let Some(entry) = self.entries.get_mut(token as usize) {
            *entry = sample.0;
        }
    }

    /// Takes a token back when its block is freed. Returns the number of the sample, if it was recorded.
    pub fn release(&mut self, token: u32) -> Option<SampleId> {
        let entry = std::mem::replace(self.entries.get_mut(token as usize)?, Self::NO_SAMPLE);
        self.unused.push(token);
        (entry != Self::NO_SAMPLE).then_some(SampleId(entry))
    }

    /// Marks all tokens as belonging to another profile.
    pub fn make_stale(&mut self) {
        self.entries.fill(Self::NO_SAMPLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_used_again_only_after_its_release() {
        let mut tokens = Tokens::default();
        let (first, second) = (tokens.issue().unwrap(), tokens.issue().unwrap());
        assert_ne!(first, second);
        tokens.set(first, SampleId(7));
        assert_eq!(tokens.release(first), Some(SampleId(7)));
        assert_eq!(tokens.issue(), Some(first));
        assert_eq!(
            tokens.release(first),
            None,
            "the sample of the token's earlier block"
        );
        tokens.set(second, SampleId(8));
        tokens.make_stale();
        assert_eq!(tokens.release(second), None);
    }
}
