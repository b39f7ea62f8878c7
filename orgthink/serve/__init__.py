"""An organization served as a model, behind the chat interface of OpenAI. Needs the extra `serve`."""
