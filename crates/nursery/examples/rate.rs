//! How fast objects are allocated that die at once: `rate [--every BYTES] [--seed N] [--nursery BYTES] [--no-field] [GIGABYTES]`.
//!
//! Each object has one field, which gets an integer unless `--no-field` is given.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use nthbyte_nursery::{HeapSizes, Items, MovingHeap, Observer, SampledObject, Type, TypeId};
use nthbyte_sampling::{Distances, Period, Sampler};

const USAGE: &str =
    "usage: rate [--every BYTES] [--seed N] [--nursery BYTES] [--no-field] [GIGABYTES]";
/// An object's size: its header and a slot.
const SIZE: usize = 16;

#[derive(Default)]
struct Count(u64);

impl Observer for Count {
    fn sampled(&mut self, _: SampledObject) {
        self.0 += 1;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut seed = 1;
    let (mut period, mut settings, mut field, mut gigabytes) =
        (None, HeapSizes::default(), true, 10.0);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--every" => {
                period =
                    Some(Period::new(value()?.parse()?).ok_or("--every is 1, or from 64 to 2^40")?)
            }
            "--nursery" => settings.nursery = value()?.parse()?,
            "--seed" => seed = value()?.parse()?,
            "--no-field" => field = false,
            _ => gigabytes = argument.parse().map_err(|_| USAGE)?,
        }
    }
    let object = Type {
        name: "object".into(),
        slots: 1,
        bytes: 0,
        items: Items::None,
    };
    let mut heap = MovingHeap::new(settings, vec![object], Count::default());
    if let Some(period) = period {
        heap.start_sampling(Sampler::new(period, Distances::Exponential, seed));
    }
    let objects = (gigabytes * 1e9) as u64 / SIZE as u64;
    let begin = Instant::now();
    if field {
        allocate::<true>(&mut heap, objects);
    } else {
        allocate::<false>(&mut heap, objects);
    }
    let seconds = begin.elapsed().as_secs_f64();
    let allocated = heap.statistics().allocated;
    println!(
        "{:.2} GB/s, {allocated} bytes in {seconds:.3} s, {} samples",
        allocated as f64 / seconds / 1e9,
        heap.observer().0
    );
    Ok(())
}

/// The pair of objects is not a root, so a collection finds nothing alive: the rate is allocation's alone. With `FIELD`,
/// each object gets an integer.
#[inline(never)]
fn allocate<const FIELD: bool>(heap: &mut MovingHeap<Count>, objects: u64) {
    for number in 0..objects {
        // SAFETY: `SIZE` is the size of this type's objects. The address is used before the next allocation only, and the slot
        // gets an integer.
        unsafe {
            let object = heap.allocate_unrooted(TypeId(0), SIZE);
            if FIELD {
                object.add(1).write(number << 1 | 1);
            }
            black_box(object);
        }
    }
}
