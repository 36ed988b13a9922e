//! Random sequences of operations, each predicted (see `model`).

mod model;

use model::{Model, Operation};
use nthbyte_heap::{HeapConfig, HugePages};
use proptest::prelude::*;

fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 0usize..=128,
        3 => 0usize..=513,
        1 => 500usize..=2100,
        1 => 0usize..=60_000,
    ]
}

fn periods() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(1), 3 => 64u64..=4096, 3 => 64u64..=1 << 20, 1 => Just(1 << 40)]
}

fn changed_periods() -> impl Strategy<Value = u64> {
    prop_oneof![64u64..=4096, 64u64..=1 << 20]
}

fn operations() -> impl Strategy<Value = Operation> {
    prop_oneof![
        30 => (sizes(), any::<bool>()).prop_map(|(size, domain)| Operation::Malloc { size, domain }),
        5 => (sizes(), any::<bool>()).prop_map(|(size, domain)| Operation::Calloc { size, domain }),
        10 => (any::<usize>(), sizes(), any::<bool>())
            .prop_map(|(block, size, domain)| Operation::Realloc { block, size, domain }),
        25 => (any::<usize>(), any::<bool>())
            .prop_map(|(block, domain)| Operation::Free { block, domain }),
        2 => (0usize..=2032, 1usize..3000)
            .prop_map(|(size, count)| Operation::Burst { size, count }),
        2 => (1usize..5).prop_map(|step| Operation::Sweep { step }),
        3 => (periods(), any::<u64>()).prop_map(|(period, seed)| Operation::Start { period, seed }),
        4 => (changed_periods(), any::<bool>())
            .prop_map(|(period, in_observer)| Operation::Period { period, in_observer }),
        2 => any::<u64>().prop_map(|number| Operation::Diverge { number }),
        1 => Just(Operation::Stop),
        1 => any::<usize>().prop_map(|block| Operation::RemoteFree { block }),
    ]
}

fn configurations() -> impl Strategy<Value = HeapConfig> {
    let huge_pages = prop_oneof![
        Just(HugePages::Thp),
        Just(HugePages::Hugetlb),
        Just(HugePages::Off)
    ];
    let limits = prop::array::uniform2(512usize..=2032);
    let settings = (limits, any::<bool>(), huge_pages, 0usize..4);
    settings.prop_map(|(limits, trusts, huge_pages, arenas)| HeapConfig {
        limits,
        trusts: trusts.then_some(model::trusts),
        huge_pages,
        huge_pages_from: arenas << 21,
        ..HeapConfig::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_goes_as_predicted(
        config in configurations(),
        operations in prop::collection::vec(operations(), 1..400),
    ) {
        let mut model = Model::new(config);
        for operation in &operations {
            model.run(operation);
        }
        model.check_totals();
        prop_assert!(model.live() <= 3000 * operations.len());
        model.finish();
    }
}
