"""The five revisions of MCP as typed models, and the tables of what each allows.

`read_params`, `read_result`, `read_error` and their writers are the usual way in; `read` and `write` take any model.
"""
