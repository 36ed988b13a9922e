//! The way from a thread's state to the set entered there.

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::hamt::{Map, Words};
use crate::api::OB_TYPE;

/// How samples find the labels, once that has been checked; null before.
static READER: AtomicPtr<LabelReader> = AtomicPtr::new(std::ptr::null_mut());

/// See [`READER`].
pub struct LabelReader {
    /// The offset of the context in a thread's state.
    pub context: usize,
    pub map: Map,
    /// The context variable.
    pub variable: usize,
    pub hash: i32,
    /// The type of the value: of entered sets.
    pub entered: usize,
}

/// Lets samples read labels from now on.
pub fn publish(reader: LabelReader) {
    READER.store(Box::into_raw(Box::new(reader)), Release);
}

#[inline]
pub fn reader() -> Option<&'static LabelReader> {
    // SAFETY: readers are never freed.
    unsafe { READER.load(Acquire).as_ref() }
}

impl LabelReader {
    /// The context of a thread.
    #[inline(always)]
    pub fn context(&self, state: usize, words: &impl Words) -> Option<usize> {
        words.at(state, self.context)
    }

    /// The address of the entered set of a context; `None` if there is none, or if a word cannot be read.
    #[inline]
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn entered_in(&self, context: usize, words: &impl Words) -> Option<usize> {
        if context == 0 {
            return None;
        }
        let value = self.map.find(words, context, self.variable, self.hash)?;
        (words.at(value, OB_TYPE)? == self.entered).then_some(value)
    }

    /// The address of the entered set of a thread.
    #[inline]
    #[unsafe(link_section = "nthbyte_hot")]
    pub fn entered(&self, state: usize, words: &impl Words) -> Option<usize> {
        self.entered_in(self.context(state, words)?, words)
    }
}
