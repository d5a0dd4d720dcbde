//! Macros that define a message as one table: order, size, type, unit and meaning of its fields are
//! written once, and reader, writer and size check are generated.

/// A message of fixed size, as a table of [`Field`](crate::Field)s in wire order.
///
/// The stated size is checked against the sum of the fields when it compiles.
///
/// ```
/// wire::wire_struct! {
///     /// Asks for one index.
///     pub GetNextIndex [8 bytes] {
///         /// The stream.
///         stream: wire::StreamId,
///     }
/// }
/// use wire::Field;
/// let ask = GetNextIndex::read(&mut &[0, 0, 0, 0, 0, 0, 0, 7][..]).unwrap();
/// assert_eq!(ask.stream, wire::StreamId(7));
/// ```
#[macro_export]
macro_rules! wire_struct {
    ($(
        $(#[$meta:meta])*
        $vis:vis $name:ident [$size:literal bytes] {
            $( $(#[$field_meta:meta])* $field:ident : $type:ty ),* $(,)?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        $vis struct $name {
            $( $(#[$field_meta])* $vis $field: $type, )*
        }

        const _: () = assert!(
            <$name as $crate::Field>::SIZE == $size,
            concat!("the fields of ", stringify!($name), " do not add up to its size"),
        );

        impl $crate::Field for $name {
            const SIZE: usize = 0 $( + <$type as $crate::Field>::SIZE )*;

            fn read(from: &mut &[u8]) -> Result<Self, $crate::DecodeError> {
                // First of all, so that the error names the message and not one of its fields.
                if from.len() < Self::SIZE {
                    return Err($crate::DecodeError::Truncated {
                        what: stringify!($name),
                        need: Self::SIZE,
                        have: from.len(),
                    });
                }
                let mut at = *from;
                let value = Self { $( $field: <$type as $crate::Field>::read(&mut at)?, )* };
                *from = at;
                Ok(value)
            }

            fn write(&self, to: &mut impl $crate::__private::BufMut) {
                $( $crate::Field::write(&self.$field, to); )*
            }
        }
    )*};
}

/// A 32-bit code with a closed set of values. Any other value is refused by name.
///
/// ```
/// wire::wire_enum! {
///     /// Where reading starts.
///     pub Seek {
///         /// The oldest packet.
///         Beginning = 1,
///         /// The next packet that arrives.
///         Last = 2,
///     }
/// }
/// use wire::{DecodeError, Field};
/// assert_eq!(Seek::read(&mut &[0, 0, 0, 2][..]), Ok(Seek::Last));
/// assert_eq!(
///     Seek::read(&mut &[0, 0, 0, 9][..]),
///     Err(DecodeError::UnknownCode { what: "Seek", got: 9 }),
/// );
/// ```
#[macro_export]
macro_rules! wire_enum {
    ($(
        $(#[$meta:meta])*
        $vis:vis $name:ident {
            $( $(#[$code_meta:meta])* $code:ident = $value:literal ),* $(,)?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        $vis enum $name {
            $( $(#[$code_meta])* $code = $value, )*
        }

        impl $name {
            /// Every value, in the order of the table.
            $vis const ALL: &[Self] = &[$( Self::$code, )*];

            /// The number on the wire.
            #[must_use]
            $vis const fn code(self) -> u32 {
                self as u32
            }

            /// The value with this number on the wire.
            ///
            /// # Errors
            /// [`UnknownCode`](wire::DecodeError::UnknownCode) for any number not in the table.
            $vis fn from_code(code: u32) -> Result<Self, $crate::DecodeError> {
                match code {
                    $( $value => Ok(Self::$code), )*
                    _ => Err($crate::DecodeError::UnknownCode {
                        what: stringify!($name),
                        got: u64::from(code),
                    }),
                }
            }
        }

        impl $crate::Field for $name {
            const SIZE: usize = 4;

            fn read(from: &mut &[u8]) -> Result<Self, $crate::DecodeError> {
                // `from` stays as it is if the code is unknown.
                let mut at = *from;
                let value = Self::from_code(u32::read(&mut at)?)?;
                *from = at;
                Ok(value)
            }

            fn write(&self, to: &mut impl $crate::__private::BufMut) {
                $crate::Field::write(&self.code(), to);
            }
        }
    )*};
}

/// A table of commands: a row has the name of a command, its request, and its code.
///
/// The macro makes two enums, one of codes (a [`wire_enum!`](crate::wire_enum)) and one of commands
/// with their requests, and three private functions: `request_size` of a code, `decode_request` and
/// `encode_request` of a command. A request is a [`Message`](crate::Message) in forms of the given
/// type; a command without one has no parentheses.
///
/// ```
/// wire::wire_commands! {
///     /// The codes of all commands.
///     pub enum CommandCode;
///     /// A command with its request, which has the same form in every version.
///     pub enum Command, form ();
///
///     /// Lists all sessions.
///     ListSessions = 2;
///     /// Requests the index of a stream's next packet.
///     GetNextIndex(wire::StreamId) = 4;
/// }
/// let command = Command::decode_request(CommandCode::GetNextIndex, (), &[0, 0, 0, 0, 0, 0, 0, 7]);
/// assert_eq!(command, Ok(Command::GetNextIndex(wire::StreamId(7))));
/// assert_eq!(CommandCode::ListSessions.request_size(), 0);
/// ```
#[macro_export]
macro_rules! wire_commands {
    // A pattern has no place for the type of the request, which decides whether there is a binding.
    (@binding $binding:ident $request:ty) => { $binding };
    (
        $(#[$code_meta:meta])*
        $code_vis:vis enum $code:ident;
        $(#[$command_meta:meta])*
        $vis:vis enum $command:ident, form $form:ty;
        $( $(#[$meta:meta])* $name:ident $( ($request:ty) )? = $value:literal; )*
    ) => {
        $crate::wire_enum! {
            $(#[$code_meta])*
            $code_vis $code { $( $(#[$meta])* $name = $value, )* }
        }

        $(#[$command_meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        $vis enum $command {
            $( $(#[$meta])* $name $( ($request) )?, )*
        }

        impl $code {
            /// Size of the largest form of the request, in bytes.
            fn request_size(self) -> usize {
                match self {
                    $( Self::$name => 0 $( + <$request as $crate::Message<$form>>::MAX_SIZE )?, )*
                }
            }
        }

        impl $command {
            /// Code of the command.
            #[must_use]
            $vis fn code(&self) -> $code {
                match self {
                    // This pattern fits a variant with and one without a request.
                    $( Self::$name { .. } => $code::$name, )*
                }
            }

            fn decode_request(
                code: $code,
                form: $form,
                from: &[u8],
            ) -> Result<Self, $crate::DecodeError> {
                Ok(match code {
                    $( $code::$name => Self::$name $( (
                        <$request as $crate::Message<$form>>::decode(form, from)?
                    ) )?, )*
                })
            }

            fn encode_request(&self, form: $form, to: &mut impl $crate::__private::BufMut) {
                match self {
                    $( Self::$name $( ( $crate::wire_commands!(@binding request $request) ) )? => {
                        $( <$request as $crate::Message<$form>>::encode(request, form, to); )?
                    } )*
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{DecodeError, Field, Flagged, PacketIndex, SeqNum, StreamId};

    wire_enum! {
        /// A code.
        Kind { /// One.
            Data = 1, /// Two.
            Metadata = 2, }
    }

    wire_struct! {
        /// A message with every sort of field.
        Sample [26 bytes] {
            /// A number with a meaning.
            stream: StreamId,
            /// A number that may be missing.
            seq: Option<SeqNum>,
            /// A code.
            kind: Kind,
            /// A byte.
            last: u8,
            /// A value that may be missing.
            other: Flagged<Kind>,
        }
    }

    const SAMPLE: [u8; 26] = [
        0, 0, 0, 0, 0, 0, 0, 7, //
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, //
        0, 0, 0, 2, //
        9, //
        0, 0, 0, 0, 0,
    ];

    fn written(value: &impl Field) -> Vec<u8> {
        let mut bytes = Vec::new();
        value.write(&mut bytes);
        bytes
    }

    #[test]
    fn a_message_reads_and_writes_back_to_the_same_bytes() {
        let sample = Sample::read(&mut &SAMPLE[..]).unwrap();
        let expected = Sample {
            stream: StreamId(7),
            seq: None,
            kind: Kind::Metadata,
            last: 9,
            other: Flagged(None),
        };
        assert_eq!(sample, expected);
        assert_eq!(written(&sample), SAMPLE);
    }

    #[test]
    fn every_truncated_message_is_refused_and_consumes_nothing() {
        for have in 0..SAMPLE.len() {
            let mut from = &SAMPLE[..have];
            let refused = DecodeError::Truncated {
                what: "Sample",
                need: 26,
                have,
            };
            assert_eq!(Sample::read(&mut from), Err(refused));
            assert_eq!(from.len(), have);
        }
    }

    #[test]
    fn the_bytes_of_an_unset_flagged_value_are_ignored() {
        let mut bytes = SAMPLE;
        bytes[22..].fill(0xaa);
        assert_eq!(Sample::read(&mut &bytes[..]).unwrap().other, Flagged(None));
        bytes[21..].copy_from_slice(&[1, 0, 0, 0, 1]);
        assert_eq!(
            Sample::read(&mut &bytes[..]).unwrap().other,
            Flagged(Some(Kind::Data))
        );
    }

    #[test]
    fn every_wire_enum_code_reads_back_as_its_value() {
        for &kind in Kind::ALL {
            assert_eq!(Kind::read(&mut &written(&kind)[..]), Ok(kind));
        }
    }

    #[test]
    fn an_unknown_wire_enum_code_is_refused_by_name() {
        let mut bytes = SAMPLE;
        bytes[19] = 3;
        let refused = DecodeError::UnknownCode {
            what: "Kind",
            got: 3,
        };
        assert_eq!(Sample::read(&mut &bytes[..]), Err(refused));
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_what_would_have_been_written(bytes: [u8; 64]) {
            let index = PacketIndex::read(&mut &bytes[..]).unwrap();
            prop_assert_eq!(written(&index), bytes);
        }

        #[test]
        fn what_is_written_is_read_back(stream: u64, seq: u64, last: u8, other: bool) {
            let sample = Sample {
                stream: StreamId(stream),
                seq: (seq != u64::MAX).then_some(SeqNum(seq)),
                kind: Kind::Data,
                last,
                other: Flagged(other.then_some(Kind::Metadata)),
            };
            prop_assert_eq!(Sample::read(&mut &written(&sample)[..]), Ok(sample));
        }
    }
}
