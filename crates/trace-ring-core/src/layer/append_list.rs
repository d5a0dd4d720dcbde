//! A list that grows and never shrinks. Reading and appending take no lock: a signal handler or a
//! forked child may do either at any time.

use std::ptr;

use crate::memory::Published;

/// A linked list whose nodes live for ever.
#[derive(Debug)]
pub(super) struct AppendList<T: 'static> {
    head: Published<Node<T>>,
}

#[derive(Debug)]
struct Node<T: 'static> {
    value: T,
    next: Published<Self>,
}

impl<T: Sync> AppendList<T> {
    pub(super) const fn new() -> Self {
        Self {
            head: Published::new(),
        }
    }

    /// Returns the first value that `is_wanted` accepts.
    #[inline]
    pub(super) fn find(&self, is_wanted: impl Fn(&T) -> bool) -> Option<&'static T> {
        let mut place = self.head.get();
        while let Some(node) = place {
            if is_wanted(&node.value) {
                return Some(&node.value);
            }
            place = node.next.get();
        }
        None
    }

    /// Appends a value unless there is one that `is_same` accepts; returns the one that is in the
    /// list.
    pub(super) fn append(&self, value: T, is_same: impl Fn(&T) -> bool) -> &'static T {
        let next = Published::new();
        let new: &'static Node<T> = Box::leak(Box::new(Node { value, next }));
        let mut node = self.head.get_or_set(new);
        while !ptr::eq(node, new) && !is_same(&node.value) {
            node = node.next.get_or_set(new);
        }
        &node.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_append_the_same_value_find_one_of_it() {
        static LIST: AppendList<u32> = AppendList::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..100 {
                        let found = LIST
                            .find(|value| *value == n)
                            .unwrap_or_else(|| LIST.append(n, |value| *value == n));
                        assert_eq!(*found, n);
                    }
                });
            }
        });
        for n in 0..100 {
            let first = LIST.find(|value| *value == n).unwrap();
            assert!(ptr::eq(first, LIST.append(n, |value| *value == n)));
        }
        assert!(LIST.find(|value| *value == 100).is_none());
    }
}
