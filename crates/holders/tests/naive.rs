//! Against the definitions: a node dominates what cannot be reached without it.

use nthbyte_holders::{Graph, NONE, Subgraph, Unlimited, WorkLimit, dominators, others};
use proptest::prelude::*;

/// A made-up graph: each node's kind of root, and the references. Addresses are [`address`].
#[derive(Clone, Debug)]
struct Given {
    roots: Vec<u8>,
    edges: Vec<(usize, usize)>,
    samples: Vec<usize>,
}

/// Several nodes in one OS page, and some in another one.
fn address(node: usize) -> usize {
    0x7f00_0000_0000 + node % 3 * 0x20_1000 + node * 16
}

fn given() -> impl Strategy<Value = Given> {
    (2..40_usize).prop_flat_map(|nodes| {
        let kind = prop_oneof![6 => Just(0_u8), 1 => Just(1), 1 => Just(2)];
        let edge = (0..nodes, 0..nodes);
        (
            proptest::collection::vec(kind, nodes),
            proptest::collection::vec(edge, 0..3 * nodes),
            proptest::collection::vec(0..nodes, 1..8),
        )
            .prop_map(|(roots, edges, samples)| Given {
                roots,
                edges,
                samples,
            })
    })
}

impl Given {
    fn graph(&self) -> Graph {
        let mut graph = Graph::new();
        for (node, &root) in self.roots.iter().enumerate() {
            assert_eq!(graph.find(address(node)), 0);
            graph.add(address(node), root);
        }
        for &(from, to) in &self.edges {
            graph.connect(from as u32 + 1, to as u32 + 1);
        }
        graph
    }

    fn part(&self, graph: &Graph, samples: &[usize]) -> Subgraph {
        let samples = samples.iter().map(|&node| node as u32 + 1);
        Subgraph::new(graph, samples, |node| graph.flags(node), &mut Unlimited).unwrap()
    }

    /// The references that matter: not those to roots of kind 1.
    fn edges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let all = self.edges.iter().copied();
        all.filter(|&(_, to)| self.roots[to] != 1)
    }

    /// The distance of each node from the nearest of these roots, on paths that avoid a node.
    fn distances(&self, roots: &[usize], without: Option<usize>) -> Vec<Option<usize>> {
        let mut found = vec![None; self.roots.len()];
        for &root in roots.iter().filter(|&&root| Some(root) != without) {
            found[root] = Some(0);
        }
        for distance in 0..self.roots.len() {
            for (from, to) in self.edges() {
                if found[from] == Some(distance) && found[to].is_none() && Some(to) != without {
                    found[to] = Some(distance + 1);
                }
            }
        }
        found
    }

    /// The roots: all of kind 1, and for the nodes that these do not reach, some of kind 2, in the order of the part.
    fn real_roots(&self, part: &Subgraph, graph: &Graph) -> Vec<usize> {
        let node = |number| graph_node(part.in_graph(number));
        let roots = (1..part.len()).filter(|&number| part.parent(number) == 0);
        let roots: Vec<usize> = roots.map(node).collect();
        let first: Vec<usize> = (0..self.roots.len())
            .filter(|&at| self.roots[at] == 1)
            .collect();
        let reached = self.distances(&first, None);
        for &root in &roots {
            let kind = graph.flags(root as u32 + 1);
            assert!(kind == 1 || kind == 2 && reached[root].is_none());
        }
        roots
    }
}

fn graph_node(in_graph: u32) -> usize {
    in_graph as usize - 1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn dominators_and_paths_are_what_they_say(given in given()) {
        let graph = given.graph();
        let part = given.part(&graph, &given.samples);
        let tree = dominators(&part, &mut Unlimited).unwrap();
        let roots = given.real_roots(&part, &graph);
        let distances = given.distances(&roots, None);
        let first: Vec<usize> = (0..given.roots.len()).filter(|&at| given.roots[at] == 1).collect();
        let of_first = given.distances(&first, None);
        let mut depths = vec![0; part.len() as usize];
        for number in 1..part.len() {
            let node = graph_node(part.in_graph(number));
            prop_assert_eq!(part.number(node as u32 + 1), number);
            let parent = part.parent(number);
            prop_assert_eq!(parent == NONE, distances[node].is_none());
            prop_assert_eq!(tree.of(number) == NONE, parent == NONE);
            if parent == NONE {
                prop_assert!(part.is_garbage(number));
                continue;
            }
            prop_assert!(parent < number && tree.of(number) < number);
            depths[number as usize] = depths[parent as usize] + 1;
            // Paths of roots of kind 1 come first.
            let depth = Some(depths[number as usize] - 1);
            match of_first[node] {
                Some(_) => prop_assert_eq!(depth, of_first[node]),
                None => prop_assert!(depth >= distances[node]),
            }
            prop_assert!(parent == 0 || part.sources(number).contains(&parent));
            // Without it, exactly what it dominates is out of reach.
            let without = given.distances(&roots, Some(node));
            for other in 1..part.len() {
                let at = graph_node(part.in_graph(other));
                let is_lost = distances[at].is_some() && without[at].is_none();
                prop_assert_eq!(tree.dominates(number, other), is_lost);
            }
        }
    }

    /// The nodes outside of the part change nothing for the samples.
    #[test]
    fn the_part_has_the_dominators_of_the_whole(given in given()) {
        // Roots of kind 2 are chosen by the nodes in the part.
        let given = Given {
            roots: given.roots.iter().map(|&kind| kind % 2).collect(),
            ..given
        };
        let graph = given.graph();
        let all: Vec<usize> = (0..given.roots.len()).collect();
        let whole = given.part(&graph, &all);
        let part = given.part(&graph, &given.samples);
        let (of_whole, of_part) = (
            dominators(&whole, &mut Unlimited).unwrap(),
            dominators(&part, &mut Unlimited).unwrap(),
        );
        let in_graph = |part: &Subgraph, node: u32| match node {
            0 | NONE => node,
            node => part.in_graph(node),
        };
        for number in 1..part.len() {
            let there = whole.number(part.in_graph(number));
            prop_assert_eq!(
                in_graph(&part, of_part.of(number)),
                in_graph(&whole, of_whole.of(there))
            );
        }
    }

    /// Without them, what roots of kind 1 lead to is as if there were no others.
    #[test]
    fn references_of_the_second_kind_can_be_forgotten(given in given()) {
        let graph = given.graph();
        let mut part = given.part(&graph, &given.samples);
        part.forget_second();
        let tree = dominators(&part, &mut Unlimited).unwrap();
        let first = Given {
            roots: given.roots.iter().map(|&kind| kind % 2).collect(),
            edges: given.edges.clone(),
            samples: given.samples.clone(),
        };
        let alone = first.graph();
        let of_first = first.part(&alone, &first.samples);
        let expected = dominators(&of_first, &mut Unlimited).unwrap();
        for number in 1..of_first.len() {
            if of_first.is_garbage(number) {
                continue;
            }
            let here = part.number(of_first.in_graph(number));
            let of = |part: &Subgraph, node: u32| if node == 0 { 0 } else { part.in_graph(node) };
            prop_assert_eq!(of(&part, tree.of(here)), of(&of_first, expected.of(number)));
        }
        // And the others still lead to what only they lead to.
        for number in 1..part.len() {
            prop_assert_eq!(part.is_garbage(number), tree.of(number) == NONE);
        }
    }

    #[test]
    fn others_have_paths_of_their_own(given in given()) {
        let graph = given.graph();
        let part = given.part(&graph, &given.samples);
        let tree = dominators(&part, &mut Unlimited).unwrap();
        for number in 1..part.len() {
            let parent = part.parent(number);
            let found = others(&part, &tree, number, 3, |_| false);
            prop_assert!(found.len() <= 3);
            if parent == 0 || parent == NONE || tree.of(number) == parent {
                prop_assert!(found.is_empty());
                continue;
            }
            for &other in &found {
                prop_assert!(part.sources(number).contains(&other) && other != parent);
                let mut at = other;
                while at != 0 {
                    prop_assert!(at != number && at != parent);
                    at = part.parent(at);
                }
            }
        }
    }
}

#[test]
fn a_diamond_has_two_holders() {
    // 0 (root) refers to 1 and 2, which both refer to 3, which refers to 4.
    let given = Given {
        roots: vec![1, 0, 0, 0, 0],
        edges: vec![(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)],
        samples: vec![4],
    };
    let graph = given.graph();
    let part = given.part(&graph, &given.samples);
    let tree = dominators(&part, &mut Unlimited).unwrap();
    let number = |node: u32| part.number(node + 1);
    assert_eq!(tree.of(number(4)), number(3));
    assert_eq!(tree.of(number(3)), number(0));
    let parent = part.parent(number(3));
    let other = number(1) + number(2) - parent;
    assert_eq!(others(&part, &tree, number(3), 3, |_| false), [other]);
}

/// A chain that is longer than a stack has room for, and a limit that ends the work.
#[test]
fn a_long_chain_needs_no_deep_calls_and_ends_at_the_limit() {
    const LENGTH: u32 = 300_000;
    let mut graph = Graph::new();
    for node in 1..=LENGTH {
        graph.add(0x1000 + 48 * node as usize, u8::from(node == 1));
        if node > 1 {
            graph.connect(node - 1, node);
            // From each to the first one after the root: semidominators are far away.
            graph.connect(node, 2);
        }
    }
    let root = |node| graph.flags(node);
    let part = Subgraph::new(&graph, [LENGTH].into_iter(), root, &mut Unlimited).unwrap();
    assert_eq!(part.len(), LENGTH + 1);
    let tree = dominators(&part, &mut Unlimited).unwrap();
    assert!((2..part.len()).all(|node| tree.of(node) == node - 1));

    struct AfterSome(u32);
    impl WorkLimit for AfterSome {
        fn is_over(&mut self) -> bool {
            self.0 -= 1;
            self.0 == 0
        }
    }
    assert!(dominators(&part, &mut AfterSome(3)).is_none());
    assert!(Subgraph::new(&graph, [LENGTH].into_iter(), root, &mut AfterSome(3)).is_none());
}
