//! Where the fields of the published schema are, and the JSON of each event.
//!
//! A structure of the schema has data and pointers; the fields of a union share places. Ids, lines
//! and places are structures of one number each.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::message::{MAX_DEPTH, Message, MessageError, Place, Structure};

/// Numbers of the kinds of log events in JSON, by their numbers in the schema.
const LOG_KINDS: [u8; 14] = [0, 1, 3, 4, 6, 7, 8, 9, 10, 11, 12, 2, 5, 13];

type Written = Result<(), MessageError>;

/// Writes one event as an element of `trace.json`.
pub(super) fn write_event(message: &Message, event: Structure, json: &mut String) -> Written {
    let kind = u16::from_le_bytes(message.data(event, 0));
    let mut writer = EventWriter { message, json };
    let payload = message.pointer(event, 0);
    if kind == 20 {
        writer.json.push_str("\"DropLastStep\"");
        return Ok(());
    }
    let name = match kind {
        0 => "Step",
        1 => "Path",
        2 => "VariableName",
        3 => "Variable",
        4 => "Type",
        5 => "Value",
        6 => "Function",
        7 => "Call",
        8 => "Return",
        9 => "Event",
        10 => "Asm",
        11 => "BindVariable",
        12 => "Assignment",
        13 => "DropVariables",
        14 => "CompoundValue",
        15 => "CellValue",
        16 => "AssignCompoundItem",
        17 => "AssignCell",
        18 => "VariableCell",
        19 => "DropVariable",
        21 => "ThreadStart",
        22 => "ThreadExit",
        23 => "ThreadSwitch",
        kind => return Err(MessageError::UnknownKind(kind)),
    };
    writer.put(format_args!("{{\"{name}\":"));
    match kind {
        1 => {
            let path = message.structure(payload)?;
            writer.text(message.pointer(path, 0))?;
        }
        2 | 3 => writer.text(payload)?,
        10 => writer.list_of_texts(payload)?,
        13 => writer.list_of_ids(payload)?,
        19 => writer.id(payload)?,
        21..=23 => {
            let thread = message.structure(payload)?;
            let number = u64::from_le_bytes(message.data(thread, 0));
            writer.put(format_args!("{number}"));
        }
        kind => writer.payload(kind, payload)?,
    }
    writer.json.push('}');
    Ok(())
}

struct EventWriter<'a> {
    message: &'a Message,
    json: &'a mut String,
}

impl EventWriter<'_> {
    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.json.write_fmt(text);
    }

    /// Writes the payload of a kind that has members.
    fn payload(&mut self, kind: u16, payload: Place) -> Written {
        let of = self.message.structure(payload)?;
        let pointer = |number| self.message.pointer(of, number);
        let [first, second, third] = [pointer(0), pointer(1), pointer(2)];
        let code = u16::from_le_bytes(self.message.data(of, 0));
        self.json.push('{');
        match kind {
            0 => {
                self.id_member("path_id", first)?;
                self.id_member(",line", second)?;
            }
            4 => {
                self.put(format_args!("\"kind\":{code},\"lang_type\":"));
                self.text(first)?;
                self.json.push_str(",\"specific_info\":");
                self.specific_info(second)?;
            }
            5 => self.variable_value(first, second, 0)?,
            6 => {
                self.id_member("path_id", first)?;
                self.id_member(",line", second)?;
                self.json.push_str(",\"name\":");
                self.text(third)?;
            }
            7 => {
                self.id_member("function_id", first)?;
                self.json.push_str(",\"args\":");
                self.arguments(second)?;
            }
            8 => self.value_member("return_value", first, 0)?,
            9 => {
                let kind = LOG_KINDS.get(usize::from(code));
                let kind = kind.ok_or(MessageError::UnknownKind(code))?;
                self.put(format_args!("\"kind\":{kind},\"metadata\":"));
                self.text(second)?;
                self.json.push_str(",\"content\":");
                self.text(first)?;
            }
            11 | 18 => {
                self.id_member("variable_id", first)?;
                self.id_member(",place", second)?;
            }
            12 => {
                let pass_by = if code == 0 { "Value" } else { "Reference" };
                self.id_member("to", first)?;
                self.put(format_args!(",\"pass_by\":\"{pass_by}\",\"from\":"));
                self.assigned(second)?;
            }
            14 | 15 => {
                self.id_member("place", first)?;
                self.value_member(",value", second, 0)?;
            }
            16 => {
                let index = i64::from_le_bytes(self.message.data(of, 0));
                self.id_member("place", first)?;
                self.put(format_args!(",\"index\":{index}"));
                self.id_member(",item_place", second)?;
            }
            _ => {
                self.id_member("place", first)?;
                self.value_member(",new_value", second, 0)?;
            }
        }
        self.json.push('}');
        Ok(())
    }

    fn member(&mut self, name: &str) {
        match name.strip_prefix(',') {
            Some(name) => self.put(format_args!(",\"{name}\":")),
            None => self.put(format_args!("\"{name}\":")),
        }
    }

    fn id_member(&mut self, name: &str, place: Place) -> Written {
        self.member(name);
        self.id(place)
    }

    fn value_member(&mut self, name: &str, place: Place, depth: u32) -> Written {
        self.member(name);
        self.value(place, depth)
    }

    /// Writes the number of a structure of one number.
    fn id(&mut self, place: Place) -> Written {
        let of = self.message.structure(place)?;
        let number = i64::from_le_bytes(self.message.data(of, 0));
        self.put(format_args!("{number}"));
        Ok(())
    }

    fn text(&mut self, place: Place) -> Written {
        let text = self.message.text(place)?;
        self.quoted(text);
        Ok(())
    }

    fn quoted(&mut self, text: &str) {
        let mut json = Vec::with_capacity(text.len() + 2);
        crate::record::write_text(&mut json, text);
        self.json.push_str(&String::from_utf8_lossy(&json));
    }

    fn list_of_texts(&mut self, place: Place) -> Written {
        let list = self.message.list(place)?;
        self.json.push('[');
        let mut number = 0;
        while let Some(text) = self.message.pointer_element(list, number) {
            self.separate(number);
            self.text(text)?;
            number += 1;
        }
        self.json.push(']');
        Ok(())
    }

    fn list_of_ids(&mut self, place: Place) -> Written {
        self.list_of(place, |writer, element| {
            let number = i64::from_le_bytes(writer.message.data(element, 0));
            writer.put(format_args!("{number}"));
            Ok(())
        })
    }

    fn list_of(
        &mut self,
        place: Place,
        mut write: impl FnMut(&mut Self, Structure) -> Written,
    ) -> Written {
        let list = self.message.list(place)?;
        self.json.push('[');
        let mut number = 0;
        while let Some(element) = self.message.element(list, number) {
            self.separate(number);
            write(self, element)?;
            number += 1;
        }
        self.json.push(']');
        Ok(())
    }

    fn separate(&mut self, number: usize) {
        if number > 0 {
            self.json.push(',');
        }
    }

    fn arguments(&mut self, place: Place) -> Written {
        self.list_of(place, |writer, argument| {
            let variable = writer.message.pointer(argument, 0);
            let value = writer.message.pointer(argument, 1);
            writer.json.push('{');
            writer.variable_value(variable, value, 0)?;
            writer.json.push('}');
            Ok(())
        })
    }

    fn variable_value(&mut self, variable: Place, value: Place, depth: u32) -> Written {
        self.id_member("variable_id", variable)?;
        self.value_member(",value", value, depth)
    }

    fn specific_info(&mut self, place: Place) -> Written {
        let of = self.message.structure(place)?;
        let content = self.message.pointer(of, 0);
        match u16::from_le_bytes(self.message.data(of, 0)) {
            0 => self.json.push_str("{\"kind\":\"None\""),
            1 => {
                self.json.push_str("{\"kind\":\"Struct\",\"fields\":");
                self.list_of(content, |writer, field| {
                    writer.json.push_str("{\"name\":");
                    writer.text(writer.message.pointer(field, 0))?;
                    writer.id_member(",type_id", writer.message.pointer(field, 1))?;
                    writer.json.push('}');
                    Ok(())
                })?;
            }
            2 => {
                self.json.push_str("{\"kind\":\"Pointer\"");
                self.id_member(",dereference_type_id", content)?;
            }
            kind => return Err(MessageError::UnknownKind(kind)),
        }
        self.json.push('}');
        Ok(())
    }

    /// Writes what is assigned, in the form that the published types have for it.
    fn assigned(&mut self, place: Place) -> Written {
        let of = self.message.structure(place)?;
        let content = self.message.pointer(of, 0);
        match u16::from_le_bytes(self.message.data(of, 0)) {
            0 => {
                self.json.push_str("{\"kind\":\"Simple\",\"variable_id\":");
                self.id(content)?;
            }
            1 => {
                self.json
                    .push_str("{\"kind\":\"Compound\",\"variable_ids\":");
                self.list_of_ids(content)?;
            }
            kind => return Err(MessageError::UnknownKind(kind)),
        }
        self.json.push('}');
        Ok(())
    }

    fn value(&mut self, place: Place, depth: u32) -> Written {
        let of = self.message.structure(place)?;
        self.value_of(of, depth)
    }

    fn values(&mut self, place: Place, depth: u32) -> Written {
        self.list_of(place, |writer, value| writer.value_of(value, depth))
    }

    fn value_of(&mut self, of: Structure, depth: u32) -> Written {
        // The writer is recursive: a hostile message must not use up the stack.
        if depth >= MAX_DEPTH {
            return Err(MessageError::TooDeep);
        }
        let inner = depth + 1;
        let pointer = |number| self.message.pointer(of, number);
        let [first, second, third] = [pointer(0), pointer(1), pointer(2)];
        let word: [u8; 8] = self.message.data(of, 0);
        // A boolean is the lowest bit of its byte.
        let is_set = word.first().is_some_and(|byte| byte & 1 == 1);
        let kind = u16::from_le_bytes(self.message.data(of, 8));
        let mut type_id = Some(second);
        self.json.push_str("{\"kind\":\"");
        match kind {
            0 => {
                let number = i64::from_le_bytes(word);
                self.put(format_args!("Int\",\"i\":{number}"));
                type_id = Some(first);
            }
            1 => {
                // As a text: published types take a float as nothing else (`rules::forms`).
                let number = f64::from_le_bytes(word);
                self.put(format_args!("Float\",\"f\":\"{number}\""));
                type_id = Some(first);
            }
            2 => {
                self.put(format_args!("Bool\",\"b\":{is_set}"));
                type_id = Some(first);
            }
            3 => self.text_value("String\",\"text\":", first)?,
            4 => {
                self.json.push_str("Sequence\",\"elements\":");
                self.values(first, inner)?;
                self.put(format_args!(",\"is_slice\":{is_set}"));
            }
            5 => {
                self.json.push_str("Tuple\",\"elements\":");
                self.values(first, inner)?;
            }
            6 => {
                self.json.push_str("Struct\",\"field_values\":");
                self.values(first, inner)?;
            }
            7 => {
                self.text_value("Variant\",\"discriminator\":", first)?;
                self.value_member(",contents", second, inner)?;
                type_id = Some(third);
            }
            8 => {
                let address = u64::from_le_bytes(self.message.data(of, 16));
                self.json.push_str("Reference\",\"dereferenced\":");
                self.value(first, inner)?;
                self.put(format_args!(",\"address\":{address},\"mutable\":{is_set}"));
            }
            9 => self.text_value("Raw\",\"r\":", first)?,
            10 => self.text_value("Error\",\"msg\":", first)?,
            11 => {
                self.json.push_str("None\"");
                type_id = Some(first);
            }
            12 => {
                self.json.push_str("Cell\",\"place\":");
                self.id(first)?;
                type_id = None;
            }
            13 => {
                let magnitude = STANDARD.encode(self.message.list_bytes(first)?);
                self.put(format_args!(
                    "BigInt\",\"b\":\"{magnitude}\",\"negative\":{is_set}"
                ));
            }
            kind => return Err(MessageError::UnknownKind(kind)),
        }
        if let Some(type_id) = type_id {
            self.id_member(",type_id", type_id)?;
        }
        self.json.push('}');
        Ok(())
    }

    fn text_value(&mut self, before: &str, text: Place) -> Written {
        self.json.push_str(before);
        self.text(text)
    }
}
