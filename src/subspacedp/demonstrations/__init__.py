"""The paper's demonstrations on public data, and today's practice beside them."""
