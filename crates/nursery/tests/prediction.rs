//! Section 3.7 of the paper: random actions, of which the samples are predicted.

mod model;

use model::{Action, Model};
use nthbyte_nursery::HeapSizes;
use nthbyte_sampling::Distances;
use proptest::prelude::*;

fn periods() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(1), 3 => 64u64..=4096, 2 => 64u64..=1 << 20, 1 => Just(1 << 40)]
}

fn distances() -> impl Strategy<Value = Distances> {
    prop_oneof![
        Just(Distances::Fixed),
        Just(Distances::Exponential),
        Just(Distances::Every)
    ]
}

fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![
        20 => (0u16..3).prop_map(|kind| Action::Allocate { kind, length: 0 }),
        10 => (3u16..5, 0u32..40).prop_map(|(kind, length)| Action::Allocate { kind, length }),
        2 => (3u16..5, 0u32..3000).prop_map(|(kind, length)| Action::Allocate { kind, length }),
        4 => (0u16..3, 1usize..200).prop_map(|(kind, count)| Action::Garbage { kind, count }),
        15 => (any::<usize>(), any::<usize>(), any::<usize>())
            .prop_map(|(object, slot, value)| Action::Store { object, slot, value }),
        5 => (any::<usize>(), any::<usize>(), any::<i32>())
            .prop_map(|(object, slot, value)| Action::StoreInteger { object, slot, value }),
        10 => (any::<usize>(), any::<usize>()).prop_map(|(object, slot)| Action::Load { object, slot }),
        5 => (any::<usize>(), any::<u8>()).prop_map(|(object, byte)| Action::Fill { object, byte }),
        15 => (1usize..8).prop_map(|count| Action::Drop { count }),
        4 => any::<usize>().prop_map(|object| Action::Pin { object }),
        4 => any::<usize>().prop_map(|object| Action::Unpin { object }),
        2 => Just(Action::CollectMinor),
        1 => Just(Action::Collect),
        2 => (periods(), distances(), any::<u64>())
            .prop_map(|(period, distances, seed)| Action::Start { period, distances, seed }),
        1 => Just(Action::Stop),
    ]
}

fn settings() -> impl Strategy<Value = HeapSizes> {
    (1usize << 10..1 << 13, 16usize..5000, 0usize..1 << 16).prop_map(
        |(nursery, largest_young, first_major)| HeapSizes {
            nursery,
            largest_young,
            first_major,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_goes_as_predicted(
        settings in settings(),
        actions in prop::collection::vec(actions(), 1..600),
    ) {
        let mut model = Model::new(settings);
        for action in &actions {
            model.run(action);
        }
        model.finish();
    }
}
