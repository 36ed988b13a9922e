//! Code of executables and shared libraries, in frames.
//!
//! A file says of such a frame which image it is in, and its address there. [`Profile::load`](crate::Profile::load) makes
//! one function of each image, and the address is the frame's line: no functions are known yet. What looks them up
//! replaces these frames with [`Profile::replace_frames`](crate::Profile::replace_frames).

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::event::{FrameKind, NodeId};
use crate::model::{Frame, Function, Profile, StackNode};

/// An executable or a shared library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The function of frames whose functions are not looked up: an index into [`Profile::functions`].
    pub function: u32,
    /// Hexadecimal digits; empty if the image has none.
    pub build_id: String,
}

/// Where the code of a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePlace {
    /// An index into [`Profile::images`].
    pub image: u32,
    /// The address, relative to where the image is loaded.
    pub address: u32,
}

impl Profile {
    /// The path of an image, as the process saw it.
    #[must_use]
    pub fn image_path(&self, image: u32) -> &str {
        &self.functions[self.images[image as usize].function as usize].file
    }

    /// The places of all frames whose functions are not looked up, by frame.
    #[must_use]
    pub fn unknown_places(&self) -> Vec<(u32, CodePlace)> {
        let images = self.images.iter().map(|image| image.function).zip(0..);
        let images: HashMap<u32, u32, RandomState> = images.collect();
        let place = |(number, frame): (u32, &Frame)| {
            let image = *images.get(&frame.function)?;
            let address = frame.line;
            (frame.kind == FrameKind::Native).then_some((number, CodePlace { image, address }))
        };
        (0..).zip(&self.frames).filter_map(place).collect()
    }

    /// Replaces frames that are in images. `known` has, for each place of [`Profile::unknown_places`] in its order, the
    /// functions that the code there belongs to: the innermost first, after which come the functions into which it was
    /// inlined. Stacks that are the same then become one.
    pub fn replace_frames(&mut self, known: Vec<Vec<Function>>) {
        let mut functions: HashMap<Function, u32, RandomState> = HashMap::default();
        let mut frames: HashMap<(Frame, u32), u32, RandomState> = HashMap::default();
        let mut chains: HashMap<u32, Vec<u32>, RandomState> = HashMap::default();
        for ((number, place), known) in self.unknown_places().into_iter().zip(known) {
            let mut chain = Vec::with_capacity(known.len());
            for function in known.into_iter().rev() {
                let function = *functions.entry(function).or_insert_with_key(|function| {
                    self.functions.push(function.clone());
                    self.functions.len() as u32 - 1
                });
                let frame = Frame {
                    function,
                    line: 0,
                    kind: FrameKind::Native,
                };
                let table = &mut self.frames;
                let frame = *frames.entry((frame, place.image)).or_insert_with(|| {
                    table.push(frame);
                    table.len() as u32 - 1
                });
                self.code_places.entry(frame).or_insert(place);
                chain.push(frame);
            }
            if let Some(&innermost) = chain.last() {
                self.frames[number as usize] = self.frames[innermost as usize];
                self.code_places.insert(number, place);
                chains.insert(number, chain);
            }
        }
        self.replace_by_chains(&chains);
    }

    /// Replaces each frame by a chain of frames, outermost first.
    fn replace_by_chains(&mut self, chains: &HashMap<u32, Vec<u32>, RandomState>) {
        let mut nodes: HashMap<StackNode, u32, RandomState> = HashMap::default();
        let mut stacks = vec![self.stacks[0]];
        let mut numbers = vec![NodeId::ROOT];
        for node in &self.stacks[1..] {
            let own = [node.frame];
            let chain = chains.get(&node.frame).map_or(&own[..], |chain| chain);
            let mut parent = numbers[node.parent.index()];
            for &frame in chain {
                let node = StackNode { parent, frame };
                parent = NodeId(*nodes.entry(node).or_insert_with(|| {
                    stacks.push(node);
                    stacks.len() as u32 - 1
                }));
            }
            numbers.push(parent);
        }
        self.replace_stacks(stacks, &numbers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Meta;

    fn known(name: &str) -> Function {
        Function {
            name: name.to_owned(),
            file: "/lib/a.so".to_owned(),
            first_line: 0,
        }
    }

    #[test]
    fn frames_become_functions_and_what_was_inlined_into_them() {
        let mut profile = Profile::empty(Meta::default());
        let named = |name: &str| Function {
            name: name.to_owned(),
            file: format!("/lib/{name}"),
            first_line: 0,
        };
        profile.functions = vec![named("main.py"), named("a.so")];
        profile.images.push(Image {
            function: 1,
            build_id: "c0".to_owned(),
        });
        let frame = |function, line, kind| Frame {
            function,
            line,
            kind,
        };
        profile.frames = vec![
            frame(0, 3, FrameKind::Interpreted),
            frame(1, 0x10, FrameKind::Native),
            frame(1, 0x20, FrameKind::Native),
            frame(1, 0x30, FrameKind::Native),
        ];
        let node = |parent, frame| StackNode {
            parent: NodeId(parent),
            frame,
        };
        // main.py calls 0x10, 0x20 and 0x30; 0x30 calls main.py.
        profile
            .stacks
            .extend([node(0, 0), node(1, 1), node(1, 2), node(1, 3), node(4, 0)]);
        let places = profile.unknown_places();
        let at = |address| CodePlace { image: 0, address };
        assert_eq!(places, [(1, at(0x10)), (2, at(0x20)), (3, at(0x30))]);
        assert_eq!(profile.image_path(0), "/lib/a.so");
        // The first two are in the same function, inlined into the same one; nothing is known of the third.
        let inlined = vec![known("inner"), known("outer")];
        profile.replace_frames(vec![inlined.clone(), inlined, vec![]]);
        let stack_of = |node: u32| -> Vec<String> {
            let name = |frame: &Frame| {
                let function = &profile.functions[frame.function as usize];
                format!("{}:{}", function.name, frame.line)
            };
            profile.stack(NodeId(node)).map(name).collect()
        };
        assert_eq!(profile.stacks.len(), 6);
        assert_eq!(stack_of(3), ["inner:0", "outer:0", "main.py:3"]);
        assert_eq!(stack_of(5), ["main.py:3", "a.so:48", "main.py:3"]);
        let inner = profile.stacks[3].frame;
        assert_eq!(profile.code_places.get(&inner), Some(&at(0x10)));
        // Known places are not looked up again.
        assert_eq!(profile.unknown_places(), [(3, at(0x30))]);
    }
}
