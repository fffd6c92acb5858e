//! The reference of the lines of `--input-format stream-json`, from their JSON Schema.

use std::fmt::Write as _;

use posse::frontend::instruction::line_schema;
use posse::frontend::response::response_schema;

use super::events::{body, definitions, fields, is_id};
use super::{GENERATED, prose};

/// The page about all instructions and their response.
pub(super) fn page() -> String {
    let (line, response) = (line_schema(), response_schema());
    let mut types = definitions(&line);
    types.extend(definitions(&response));
    let mut page = format!(
        "# Instructions\n<!-- {GENERATED} -->\n\n`posse run --input-format stream-json` takes one instruction a line, \
         and so does `posse attach`. Each line may have an `id`, a number or a text of \
         at most 200 characters, which its response repeats. The use of them: \
         [scripting](../guide/scripting.md#instruction-stream). An attached client cannot use \
         those that replace the session or need the settings of its process: `set_model` to \
         `export`, the lists except `commands`, and `skill`; its `undo` and `rewind` are answered \
         when they begin.\n\n## Response\n\nEach instruction has one response.\n\n"
    );
    page.push_str(&fields(&response, &types));
    page.push_str("\n## Instructions\n");
    let variants = line["oneOf"].as_array().unwrap();
    assert!(variants.len() > 30, "{} instructions", variants.len());
    for variant in variants {
        let name = variant["properties"]["type"]["const"].as_str().unwrap();
        let about = prose(variant["description"].as_str().unwrap());
        write!(page, "\n### `{name}`\n\n{about}\n\n{}", fields(variant, &types)).unwrap();
    }
    page.push_str("\n## Types\n\nTypes of fields above. Identifiers are texts.\n");
    for (name, schema) in types.iter().filter(|(name, schema)| !is_id(name, schema)) {
        let about = prose(schema["description"].as_str().unwrap_or_default());
        write!(page, "\n### `{name}`\n\n").unwrap();
        if !about.is_empty() {
            write!(page, "{about}\n\n").unwrap();
        }
        page.push_str(&body(schema, &types));
    }
    page
}
