"""What a page is made of, and how it is drawn and rendered: sections, tables and figures."""
