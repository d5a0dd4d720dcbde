//! What the programs of each user may take of this process: memory for their event classes, and
//! open rings. A program decides how many it has of both, and a user how many programs; the budget
//! is on the sum.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use trace_ring_core::format::EventClass;

use crate::limits::{
    MAX_RING_CLASS_BYTES, MAX_RING_CLASS_BYTES_OF_USER, MAX_RINGS_OF_USER,
    MIN_RING_CLASS_BYTES_OF_USER,
};

/// Bytes of a class besides those below: the class, its declaration, and the text of the
/// declaration. The text is in memory twice, with the trace and with what is sent to a relay that
/// does not know the session.
const CLASS_BYTES: u64 = 768;
/// Bytes of each field of a class, besides its name.
const FIELD_BYTES: u64 = 320;
/// How often a name is in memory.
const NAME_COPIES: u64 = 4;

/// The budgets of all users. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct UserBudgets(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    /// Bytes for the classes of all users.
    class_bytes: u64,
    users: HashMap<u32, TakenByUser>,
}

#[derive(Debug, Default)]
struct TakenByUser {
    class_bytes: u64,
    rings: usize,
    /// Processes that have a part.
    processes: usize,
}

/// The part of a user's budget that one process has. It is given back when it is dropped.
#[derive(Debug)]
pub struct ProcessBudget {
    budgets: UserBudgets,
    uid: u32,
    class_bytes: u64,
    rings: usize,
}

impl UserBudgets {
    /// Returns the part of a process of this user, of which nothing is taken.
    #[must_use]
    pub fn of_process(&self, uid: u32) -> ProcessBudget {
        self.0.lock().users.entry(uid).or_default().processes += 1;
        ProcessBudget {
            budgets: self.clone(),
            uid,
            class_bytes: 0,
            rings: 0,
        }
    }
}

impl ProcessBudget {
    /// Takes the memory of an event class. Returns false if the user has not so much, or all users
    /// together have not.
    pub fn take_class(&mut self, class: &EventClass) -> bool {
        let bytes = class_bytes(class);
        let mut taken = self.budgets.0.lock();
        let of_all = taken.class_bytes.saturating_add(bytes);
        let user = taken.users.entry(self.uid).or_default();
        let of_user = user.class_bytes.saturating_add(bytes);
        // Users who take much do not keep others from what they need.
        let has_room = of_user <= MIN_RING_CLASS_BYTES_OF_USER
            || of_user <= MAX_RING_CLASS_BYTES_OF_USER && of_all <= MAX_RING_CLASS_BYTES;
        if has_room {
            user.class_bytes = of_user;
            taken.class_bytes = of_all;
            self.class_bytes += bytes;
        }
        has_room
    }

    /// Takes an open ring. Returns false if the user has too many.
    pub fn take_ring(&mut self) -> bool {
        let mut taken = self.budgets.0.lock();
        let user = taken.users.entry(self.uid).or_default();
        let has_room = user.rings < MAX_RINGS_OF_USER;
        if has_room {
            user.rings += 1;
            self.rings += 1;
        }
        has_room
    }

    /// Gives back the ring that was closed.
    pub fn give_ring_back(&mut self) {
        self.rings = self.rings.saturating_sub(1);
        if let Some(user) = self.budgets.0.lock().users.get_mut(&self.uid) {
            user.rings = user.rings.saturating_sub(1);
        }
    }
}

impl Drop for ProcessBudget {
    fn drop(&mut self) {
        let mut taken = self.budgets.0.lock();
        taken.class_bytes = taken.class_bytes.saturating_sub(self.class_bytes);
        let Some(user) = taken.users.get_mut(&self.uid) else {
            return;
        };
        user.class_bytes = user.class_bytes.saturating_sub(self.class_bytes);
        user.rings = user.rings.saturating_sub(self.rings);
        user.processes = user.processes.saturating_sub(1);
        // Users may be many over time, and one without a process has taken nothing.
        if user.processes == 0 {
            taken.users.remove(&self.uid);
        }
    }
}

/// Returns the bytes of a class and of everything that is made of it, about.
fn class_bytes(class: &EventClass) -> u64 {
    let of_fields = class.fields.iter().map(|(name, _)| name.len());
    let names = [&class.target, &class.file, &class.name];
    let names: usize = names.into_iter().map(String::len).chain(of_fields).sum();
    CLASS_BYTES + class.fields.len() as u64 * FIELD_BYTES + names as u64 * NAME_COPIES
}

#[cfg(test)]
mod tests {
    use trace_ring_core::Severity;
    use trace_ring_core::format::FieldType;

    use super::*;

    fn class(fields: usize) -> EventClass {
        EventClass {
            id: 1,
            severity: Severity::Info,
            line: 1,
            target: "target".into(),
            file: String::new(),
            name: "name".into(),
            fields: vec![("field".into(), FieldType::U64); fields],
        }
    }

    /// Takes as many classes as there is room for.
    fn fill(process: &mut ProcessBudget) -> u64 {
        let large = class(64);
        let mut taken = 0;
        while process.take_class(&large) {
            taken += class_bytes(&large);
        }
        taken
    }

    #[test]
    fn budget_of_a_user_is_on_the_sum_of_its_processes_and_comes_back_with_them() {
        let budgets = UserBudgets::default();
        let mut processes = [0; 3].map(|_| budgets.of_process(7));
        let taken: u64 = processes.iter_mut().map(fill).sum();
        assert!(taken <= MAX_RING_CLASS_BYTES_OF_USER);
        assert!(taken > MAX_RING_CLASS_BYTES_OF_USER - 100_000);
        // Another user has its own.
        assert!(budgets.of_process(8).take_class(&class(5)));
        let [first, mut second, third] = processes;
        drop(first);
        assert_eq!(fill(&mut second), taken);
        drop((second, third));
        assert_eq!(budgets.0.lock().class_bytes, 0);
        assert!(budgets.0.lock().users.is_empty());
    }

    #[test]
    fn users_who_take_all_leave_others_what_they_need() {
        let budgets = UserBudgets::default();
        let mut hostile: Vec<_> = (0..20).map(|uid| budgets.of_process(uid)).collect();
        let taken: u64 = hostile.iter_mut().map(fill).sum();
        let small = 20 * MIN_RING_CLASS_BYTES_OF_USER;
        assert!(taken <= MAX_RING_CLASS_BYTES + small);
        let mut honest = budgets.of_process(99);
        let classes = (0..300).take_while(|_| honest.take_class(&class(5)));
        assert_eq!(classes.count(), 300);
    }

    #[test]
    fn rings_of_a_user_are_counted_over_its_processes() {
        let budgets = UserBudgets::default();
        let mut processes = [0; 2].map(|_| budgets.of_process(7));
        let [first, second] = &mut processes;
        for _ in 0..MAX_RINGS_OF_USER {
            assert!(first.take_ring());
        }
        assert!(!second.take_ring());
        assert!(budgets.of_process(8).take_ring());
        first.give_ring_back();
        assert!(second.take_ring() && !first.take_ring());
    }
}
