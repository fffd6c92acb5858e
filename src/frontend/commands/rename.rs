//! `/rename`: gives the session a title.

use crate::commands::{COMMAND, Command, QueryAnswer, SessionQuery};
use crate::instruction::{Instruction, SessionRequest};

pub(super) const RENAME: Command = Command {
    name: "rename",
    brief: "give the session a title",
    aliases: &["name"],
    argument: "[TITLE]",
    help: "give the session a title for lists; without TITLE: show it",
    run: |context, argument| {
        let Some(title) = argument.map(str::to_owned) else {
            let shown = SessionQuery::text(|session| async move {
                let title = session.title().await;
                title.map_or_else(
                    || "The session has no title; /rename TITLE gives it one.\n".to_owned(),
                    |title| format!("title: {title}\n"),
                )
            });
            return context.query(shown);
        };
        let instruction = Instruction::Request(SessionRequest::Rename(title.clone()));
        let query = SessionQuery::new(|session| async move {
            QueryAnswer::Text(match session.rename(title).await {
                Some(title) => format!("title: {title}\n"),
                None => "A title needs a visible character.\n".to_owned(),
            })
        });
        context.query(query.with_instruction(instruction));
    },
    ..COMMAND
};
