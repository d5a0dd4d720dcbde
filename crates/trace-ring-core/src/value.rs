//! Rust values as event fields.

use crate::format::{FieldType, MAX_FIELDS, MAX_STRING_SIZE};
use crate::{CallSite, EventWriter, FieldTypes};

/// A value that can be a field of an event.
pub trait Value {
    /// The type of the field in the event class.
    const TYPE: FieldType;

    /// Bytes that it takes in the event.
    fn size(&self) -> usize;

    /// Puts it into an event.
    fn put(&self, event: &mut EventWriter);
}

macro_rules! fixed_size_values {
    ($($rust:ty => $kind:ident),* $(,)?) => {$(
        impl Value for $rust {
            const TYPE: FieldType = FieldType::$kind;

            #[inline]
            fn size(&self) -> usize {
                size_of::<$rust>()
            }

            #[inline]
            fn put(&self, event: &mut EventWriter) {
                event.put_raw(&self.to_le_bytes());
            }
        }
    )*};
}

fixed_size_values! {
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    f32 => F32, f64 => F64,
}

impl Value for usize {
    const TYPE: FieldType = FieldType::U64;

    #[inline]
    fn size(&self) -> usize {
        size_of::<u64>()
    }

    #[inline]
    fn put(&self, event: &mut EventWriter) {
        event.put_raw(&u64::try_from(*self).unwrap_or(u64::MAX).to_le_bytes());
    }
}

impl Value for bool {
    const TYPE: FieldType = FieldType::Bool;

    #[inline]
    fn size(&self) -> usize {
        1
    }

    #[inline]
    fn put(&self, event: &mut EventWriter) {
        event.put_raw(&[u8::from(*self)]);
    }
}

impl Value for str {
    const TYPE: FieldType = FieldType::Str;

    #[inline]
    fn size(&self) -> usize {
        2 + self.len().min(MAX_STRING_SIZE)
    }

    #[inline]
    fn put(&self, event: &mut EventWriter) {
        put_sequence(
            event,
            self.get(..self.floor_char_boundary(MAX_STRING_SIZE))
                .unwrap_or("")
                .as_bytes(),
        );
    }
}

impl Value for [u8] {
    const TYPE: FieldType = FieldType::Bytes;

    #[inline]
    fn size(&self) -> usize {
        2 + self.len().min(MAX_STRING_SIZE)
    }

    #[inline]
    fn put(&self, event: &mut EventWriter) {
        put_sequence(event, self.get(..MAX_STRING_SIZE).unwrap_or(self));
    }
}

impl Value for String {
    const TYPE: FieldType = FieldType::Str;

    #[inline]
    fn size(&self) -> usize {
        self.as_str().size()
    }

    #[inline]
    fn put(&self, event: &mut EventWriter) {
        self.as_str().put(event);
    }
}

impl<V: Value + ?Sized> Value for &V {
    const TYPE: FieldType = V::TYPE;

    #[inline]
    fn size(&self) -> usize {
        (**self).size()
    }

    #[inline]
    fn put(&self, event: &mut EventWriter) {
        (**self).put(event);
    }
}

#[inline]
fn put_sequence(event: &mut EventWriter, bytes: &[u8]) {
    event.put_raw(&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_le_bytes());
    event.put_raw(bytes);
}

/// The values of one event, as the macro [`event!`](crate::event) makes them: `(&a, (&b, ()))`.
#[doc(hidden)]
pub trait ValueList {
    /// Number of values in the list.
    const COUNT: usize;
    /// The types, the first [`Self::COUNT`] of them.
    const ALL_TYPES: [FieldType; MAX_FIELDS];
    /// The types of the event class.
    const TYPES: &'static FieldTypes;

    /// Bytes that the values take.
    fn size(&self) -> usize;

    /// Puts the values into an event.
    fn put(&self, event: &mut EventWriter);
}

impl ValueList for () {
    const COUNT: usize = 0;
    const ALL_TYPES: [FieldType; MAX_FIELDS] = [FieldType::U8; MAX_FIELDS];
    const TYPES: &'static FieldTypes = &FieldTypes::new(&[]);

    #[inline]
    fn size(&self) -> usize {
        0
    }

    #[inline]
    fn put(&self, _: &mut EventWriter) {}
}

impl<V: Value + ?Sized, Rest: ValueList> ValueList for (&V, Rest) {
    const COUNT: usize = 1 + Rest::COUNT;
    const ALL_TYPES: [FieldType; MAX_FIELDS] = prepend(V::TYPE, Rest::ALL_TYPES);
    const TYPES: &'static FieldTypes =
        &FieldTypes::new(const { &Self::ALL_TYPES }.split_at(Self::COUNT).0);

    #[inline]
    fn size(&self) -> usize {
        self.0.size() + self.1.size()
    }

    #[inline]
    fn put(&self, event: &mut EventWriter) {
        self.0.put(event);
        self.1.put(event);
    }
}

/// Moves `types` up by one place, and puts `first` before them.
const fn prepend(first: FieldType, mut types: [FieldType; MAX_FIELDS]) -> [FieldType; MAX_FIELDS] {
    let mut moved = first;
    let mut rest: &mut [FieldType] = &mut types;
    while let [place, tail @ ..] = rest {
        (moved, *place) = (*place, moved);
        rest = tail;
    }
    types
}

/// Writes the event of a call site that is enabled.
#[doc(hidden)]
#[inline]
pub fn write_values<L: ValueList>(site: &'static CallSite, values: L) {
    if let Some(mut event) = site.begin(L::TYPES, values.size()) {
        values.put(&mut event);
        event.commit();
    }
}
