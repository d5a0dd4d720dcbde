//! The graph of what was within what: spans of one name within those of the same names are one
//! node.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::Serialize;

/// Largest number of nodes of a graph while it is made. Further ones are merged with that around
/// them.
const MAX_NODES: usize = 1 << 16;
/// Largest number of nodes of a graph that is sent: those with the most time.
const MAX_SENT_NODES: usize = 2000;

/// A node of the graph: the spans of one name that were within those of the same names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct GraphNode {
    /// How many nodes are around it.
    pub(super) depth: u16,
    pub(super) name: u32,
    /// Nanoseconds, with those within.
    pub(super) total: u64,
}

/// Names within names.
#[derive(Debug)]
pub(super) struct SpanGraph {
    nodes: Vec<Node>,
    places: HashMap<(u32, u32), u32>,
}

#[derive(Debug, Clone)]
struct Node {
    around: u32,
    name: u32,
    /// Nanoseconds: at first the own time, at the end with that of those within.
    time: u64,
}

impl SpanGraph {
    /// The node around all others.
    pub(super) const ROOT: u32 = 0;

    pub(super) fn new() -> Self {
        Self {
            nodes: vec![Node {
                around: Self::ROOT,
                name: 0,
                time: 0,
            }],
            places: HashMap::new(),
        }
    }

    /// The node of a name within another node.
    pub(super) fn within(&mut self, around: u32, name: u32) -> u32 {
        if let Some(node) = self.places.get(&(around, name)) {
            return *node;
        }
        if self.nodes.len() >= MAX_NODES {
            return around;
        }
        let node = u32::try_from(self.nodes.len()).unwrap_or(around);
        self.nodes.push(Node {
            around,
            name,
            time: 0,
        });
        self.places.insert((around, name), node);
        node
    }

    pub(super) fn add(&mut self, node: u32, time: u64) {
        if let Some(node) = self.nodes.get_mut(index(node)) {
            node.time = node.time.saturating_add(time);
        }
    }

    /// The nodes with the most time, each before those within it, of which the longest come first.
    pub(super) fn nodes_with_most(mut self) -> Vec<GraphNode> {
        // A node comes after that around it.
        for place in (1..self.nodes.len()).rev() {
            if let Some(Node { around, time, .. }) = self.nodes.get(place).cloned() {
                self.add(around, time);
            }
        }
        let mut places: Vec<u32> = (0..).take(self.nodes.len()).skip(1).collect();
        let time = |place: &u32| self.nodes.get(index(*place)).map(|node| node.time);
        // What is around a node has no less time and comes before it: it is not left out alone.
        places.sort_by_key(|place| (Reverse(time(place)), *place));
        places.truncate(MAX_SENT_NODES);
        let mut within: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for place in places {
            let node = self.nodes.get(index(place)).filter(|node| node.time > 0);
            if let Some(nodes) = node.and_then(|node| within.get_mut(index(node.around))) {
                nodes.push(place);
            }
        }
        let mut shown = Vec::new();
        let mut rest = vec![(0_u16, Self::ROOT)];
        while let Some((depth, place)) = rest.pop() {
            let (Some(node), Some(within)) =
                (self.nodes.get(index(place)), within.get_mut(index(place)))
            else {
                continue;
            };
            if place != Self::ROOT {
                shown.push(GraphNode {
                    depth: depth - 1,
                    name: node.name,
                    total: node.time,
                });
            }
            within.sort_by_key(|place| self.nodes.get(index(*place)).map(|node| node.time));
            rest.extend(within.iter().map(|place| (depth.saturating_add(1), *place)));
        }
        shown
    }
}

fn index(node: u32) -> usize {
    usize::try_from(node).unwrap_or(usize::MAX)
}
